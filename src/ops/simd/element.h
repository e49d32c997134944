// Element types as kernels see them: storage only, in a header that files compiled for one
// instruction set may include.
#pragma once

#include <stdint.h>

namespace atom::ops {

// The values are those of DType.
enum class Element : uint8_t { kFloat32, kFloat16, kBFloat16 };

struct Float16Bits {
  uint16_t bits;
};

struct BFloat16Bits {
  uint16_t bits;
};

// E4M3, of tensors whose dtype a kernel knows by other means than Element.
struct Float8Bits {
  uint8_t bits;
};

template <typename T>
struct ElementTag {
  using Type = T;
};

}  // namespace atom::ops
