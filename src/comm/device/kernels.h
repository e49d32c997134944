// What files of kernels between cards share on the host: loading kernels, and choosing one by the
// type of what is reduced.
#pragma once

#include <stdint.h>

#include "comm/device/collectives.h"
#include "tensor/gpu_api.h"

namespace atom::device_exchange {

// Brings the code of kernels to the current card. The first error counts.
template <typename... Kernels>
gpuError_t load_kernels(Kernels*... kernels) {
  gpuError_t error = ATOM_GPU(Success);
  const auto load = [&](const void* kernel) {
    ATOM_GPU(FuncAttributes) attributes;
    if (error == ATOM_GPU(Success)) error = ATOM_GPU(FuncGetAttributes)(&attributes, kernel);
  };
  (load(reinterpret_cast<const void*>(kernels)), ...);
  return error;
}

// body.template operator()<T>() for the T that `type` names.
template <typename Body>
gpuError_t with_reduced_type(ReducedType type, const Body& body) {
  switch (type) {
    case ReducedType::kFloat32:
      return body.template operator()<float>();
    case ReducedType::kFloat16:
      return body.template operator()<__half>();
    case ReducedType::kBFloat16:
      return body.template operator()<gpu_bfloat16>();
    case ReducedType::kInt32:
      return body.template operator()<int32_t>();
    case ReducedType::kInt64:
      return body.template operator()<int64_t>();
  }
  return ATOM_GPU(ErrorInvalidValue);
}

}  // namespace atom::device_exchange
