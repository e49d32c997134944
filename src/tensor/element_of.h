// From a tensor's dtype to the element type that kernels take.
#pragma once

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/element.h"

namespace atom {

static_assert(static_cast<int>(DType::kFloat32) == static_cast<int>(Element::kFloat32));
static_assert(static_cast<int>(DType::kFloat16) == static_cast<int>(Element::kFloat16));
static_assert(static_cast<int>(DType::kBFloat16) == static_cast<int>(Element::kBFloat16));
static_assert(static_cast<int>(DType::kFloat8E4M3) == static_cast<int>(Element::kFloat8E4M3));

// Of the rows that operators compute with: float32, float16 or bfloat16.
inline Element element_of(DType dtype) {
  CHECK((dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16));
  return static_cast<Element>(dtype);
}

// Of what is stored as well: those and FP8.
inline Element stored_element_of(DType dtype) {
  return dtype == DType::kFloat8E4M3 ? Element::kFloat8E4M3 : element_of(dtype);
}

}  // namespace atom
