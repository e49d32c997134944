// Multiplication by cuBLASLt, what the streaming linear is compared with. The library is opened by
// the path in ATOM_CUBLASLT.
#pragma once

#include <memory>

#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::bench {

class LibraryGemm {
 public:
  LibraryGemm();
  ~LibraryGemm();

  bool is_there() const;

  // y [rows, out_features] bfloat16 = x [rows, in_features] W^T, W and x of `element` (bfloat16, or
  // FP8 with one scale each), row-major. False when the library has no algorithm.
  bool multiply(Element element,
                const void* x,
                const void* weight,
                const float* scale,
                void* y,
                int64_t rows,
                int64_t out_features,
                int64_t in_features,
                int64_t x_stride,
                gpuStream_t stream) const;

  // The same in FP8 with scales of groups of 128 of x, rows of them `rows` rounded up to 4 apart,
  // and of blocks of 128 x 128 of the weight. False when the library has no algorithm.
  bool multiply_blocks(const void* x,
                       const float* x_scales,
                       const void* weight,
                       const float* weight_scales,
                       void* y,
                       int64_t rows,
                       int64_t out_features,
                       int64_t in_features,
                       gpuStream_t stream) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace atom::bench
