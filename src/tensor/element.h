// Element types as kernels see them: storage only, in a header that files compiled for one
// instruction set and files for the GPU's compiler may include.
#pragma once

#include <stdint.h>

namespace atom {

// The values are those of DType (tensor/element_of.h checks it).
enum class Element : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8E4M3 };

constexpr int64_t bytes_of(Element element) {
  if (element == Element::kFloat32) return 4;
  return element == Element::kFloat8E4M3 ? 1 : 2;
}

struct Float16Bits {
  uint16_t bits;
};

struct BFloat16Bits {
  uint16_t bits;
};

struct Float8Bits {
  uint8_t bits;
};

template <typename T>
struct ElementTag {
  using Type = T;
};

}  // namespace atom
