// Tensor maps, which tell the copy engine what a tensor is and what one copy takes of it, encoded
// by the driver without linking it.
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

template <int kRank>
struct TensorMapShape {
  cuuint64_t sizes[kRank];        // the innermost first
  cuuint64_t strides[kRank - 1];  // bytes, of all but the innermost
  cuuint32_t box[kRank];          // of a copy
};

// False where the driver has no such function or refuses the shape. Elements past the ends are
// zeros.
template <int kRank>
bool encode_tensor_map(CUtensorMap* map,
                       CUtensorMapDataType type,
                       const void* data,
                       const TensorMapShape<kRank>& shape,
                       CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) return false;
  cuuint32_t element_strides[kRank];
  for (cuuint32_t& stride : element_strides) stride = 1;
  return encode(map,
                type,
                kRank,
                const_cast<void*>(data),
                shape.sizes,
                shape.strides,
                shape.box,
                element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                promotion,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace atom::ops
