// Element types in device code: conversions to and from float, and from an Element to its type.
#pragma once

#include "ops/simd/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline float to_float(gpu_bfloat16 value) {
  return __bfloat162float(value);
}

template <typename T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline gpu_bfloat16 from_float<gpu_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Calls body(ElementTag<T>{}) on the host.
template <typename Body>
void dispatch_element(Element element, Body&& body) {
  switch (element) {
    case Element::kFloat32:
      return body(ElementTag<float>{});
    case Element::kFloat16:
      return body(ElementTag<__half>{});
    case Element::kBFloat16:
      return body(ElementTag<gpu_bfloat16>{});
  }
}

}  // namespace atom::ops
