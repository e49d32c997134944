// From a run-time dtype to a compile-time type:
//   dispatch_float(x.dtype(), [&]<typename T>(TypeTag<T>) { kernel(x.data<T>()); });
#pragma once

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/numeric.h"

namespace atom {

template <typename T>
struct TypeTag {};

// float32, float16 and bfloat16; any other dtype is our own mistake.
template <typename Body>
void dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(TypeTag<float>{});
    case DType::kFloat16:
      return body(TypeTag<Float16>{});
    case DType::kBFloat16:
      return body(TypeTag<BFloat16>{});
    default:
      check_failed("dtype is float32, float16 or bfloat16", dtype_name(dtype), __FILE__, __LINE__);
  }
}

}  // namespace atom
