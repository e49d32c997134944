// The driver's function that encodes tensor maps, without linking the driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace atom::ops {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Null where there is none.
inline EncodeTiled find_encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
  const bool found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return found ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

}  // namespace atom::ops
