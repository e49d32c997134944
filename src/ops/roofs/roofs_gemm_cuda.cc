#include "ops/roofs/roofs_gemm_cuda.h"

#include "base/check.h"

namespace atom::ops {
namespace {

constexpr int kMaxAlgorithms = 6;

#define CUBLAS_CHECK(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      CHECK(dtype == DType::kFloat32);
      return CUDA_R_32F;
  }
}

}  // namespace

LibraryGemm::LibraryGemm(const CublasLt& lt, DType dtype, int64_t size)
    : lt_(lt), size_(static_cast<double>(size)) {
  const cudaDataType_t type = data_type(dtype);
  const cudaDataType_t out_type = dtype == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
  CUBLAS_CHECK(lt_.Create(&handle_));
  CUBLAS_CHECK(lt_.MatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // The only form that FP8 has; a linear's weight is the transposed one.
  const cublasOperation_t transposed = CUBLAS_OP_T;
  CUBLAS_CHECK(lt_.MatmulDescSetAttribute(
      operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  CUBLAS_CHECK(lt_.MatrixLayoutCreate(&in_, type, size, size, size));
  CUBLAS_CHECK(lt_.MatrixLayoutCreate(&out_, out_type, size, size, size));
  cublasLtMatmulPreference_t preference = nullptr;
  CUBLAS_CHECK(lt_.MatmulPreferenceCreate(&preference));
  const uint64_t scratch_size = kScratchSize;
  CUBLAS_CHECK(lt_.MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch_size, sizeof(scratch_size)));
  cublasLtMatmulHeuristicResult_t results[kMaxAlgorithms];
  int num_results = 0;
  // An error is the answer of a card that lacks the type.
  const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
      handle_, operation_, in_, in_, out_, out_, preference, kMaxAlgorithms, results, &num_results);
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < num_results; ++i) {
    algorithms_.push_back(results[i].algo);
  }
  CUBLAS_CHECK(lt_.MatmulPreferenceDestroy(preference));
}

bool LibraryGemm::multiply(
    size_t algorithm, const void* a, const void* b, void* out, void* scratch, void* queue) const {
  const float one = 1, zero = 0;
  return lt_.Matmul(handle_,
                    operation_,
                    &one,
                    a,
                    in_,
                    b,
                    in_,
                    &zero,
                    out,
                    out_,
                    out,
                    out_,
                    &algorithms_[algorithm],
                    scratch,
                    kScratchSize,
                    static_cast<cudaStream_t>(queue)) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace atom::ops
