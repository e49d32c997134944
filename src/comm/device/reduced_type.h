// Which of the types that kernels reduce a tensor has.
#pragma once

#include <optional>

#include "comm/device/collectives.h"
#include "tensor/dtype.h"

namespace atom {

// None of a type that is not reduced.
inline std::optional<ReducedType> reduced_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ReducedType::kFloat32;
    case DType::kFloat16:
      return ReducedType::kFloat16;
    case DType::kBFloat16:
      return ReducedType::kBFloat16;
    case DType::kInt32:
      return ReducedType::kInt32;
    case DType::kInt64:
      return ReducedType::kInt64;
    default:
      return std::nullopt;
  }
}

}  // namespace atom
