// Element types as parameters of GPU launches: plain values that host and device code share.
#pragma once

#include <cstdint>

namespace atom::ops {

// The values are those of DType.
enum class GpuElement : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8E4M3 };

constexpr int64_t gpu_element_size(GpuElement element) {
  if (element == GpuElement::kFloat32) return 4;
  return element == GpuElement::kFloat8E4M3 ? 1 : 2;
}

}  // namespace atom::ops
