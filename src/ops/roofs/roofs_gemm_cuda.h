// Inside roofs: cuBLASLt's multiplication of two square matrices, with each algorithm that its
// heuristic proposes. Made once and kept as long as the program runs, like the library.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/linear/library/cublaslt.h"
#include "tensor/dtype.h"

namespace atom::ops {

class LibraryGemm {
 public:
  // What multiply() wants for its scratch, in bytes.
  static constexpr int64_t kScratchSize = 32 << 20;

  // [size, size] matrices of `dtype`; the product of FP8 ones is bfloat16. num_algorithms() is 0
  // where the library or the card cannot do it.
  LibraryGemm(const CublasLt& lt, DType dtype, int64_t size);
  LibraryGemm(const LibraryGemm&) = delete;
  LibraryGemm& operator=(const LibraryGemm&) = delete;

  size_t num_algorithms() const { return algorithms_.size(); }
  double flops() const { return 2.0 * size_ * size_ * size_; }
  // False when that algorithm does not run after all. Addresses are multiples of 256.
  bool multiply(
      size_t algorithm, const void* a, const void* b, void* out, void* scratch, void* queue) const;

 private:
  const CublasLt& lt_;
  const double size_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t in_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace atom::ops
