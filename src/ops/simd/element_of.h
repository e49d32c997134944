// From a tensor's dtype to the element type that kernels take.
#pragma once

#include "base/check.h"
#include "ops/simd/element.h"
#include "tensor/dtype.h"

namespace atom::ops {

static_assert(static_cast<int>(DType::kFloat32) == static_cast<int>(Element::kFloat32));
static_assert(static_cast<int>(DType::kFloat16) == static_cast<int>(Element::kFloat16));
static_assert(static_cast<int>(DType::kBFloat16) == static_cast<int>(Element::kBFloat16));

inline Element element_of(DType dtype) {
  CHECK((dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16));
  return static_cast<Element>(dtype);
}

}  // namespace atom::ops
