#include "library_gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include "harness.h"

namespace atom::bench {

namespace {

constexpr uint64_t kScratchSize = 32 << 20;

}  // namespace

struct LibraryGemm::Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) create_description;
  decltype(&cublasLtMatmulDescSetAttribute) set;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) multiply;
  cublasLtHandle_t handle;
  std::unique_ptr<Buffer> scratch;

  bool run(cublasLtMatmulDesc_t description,
           cudaDataType_t type,
           const void* x,
           const void* weight,
           void* y,
           int64_t rows,
           int64_t out_features,
           int64_t in_features,
           int64_t x_stride,
           gpuStream_t stream) const {
    cublasLtMatrixLayout_t a, b, c;
    create_layout(&a, type, in_features, out_features, in_features);
    create_layout(&b, type, in_features, rows, x_stride);
    create_layout(&c, CUDA_R_16BF, out_features, rows, out_features);
    cublasLtMatmulPreference_t preference;
    create_preference(&preference);
    set_preference(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kScratchSize, sizeof kScratchSize);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    choose(handle, description, a, b, c, c, preference, 1, &result, &found);
    if (found == 0) return false;
    const float one = 1, zero = 0;
    return multiply(handle,
                    description,
                    &one,
                    weight,
                    a,
                    x,
                    b,
                    &zero,
                    y,
                    c,
                    y,
                    c,
                    &result.algo,
                    scratch->data(),
                    kScratchSize,
                    stream) == CUBLAS_STATUS_SUCCESS;
  }
};

namespace {

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

LibraryGemm::LibraryGemm() {
  const char* path = std::getenv("ATOM_CUBLASLT");
  void* opened = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
  if (opened == nullptr) return;
  library_ = std::make_unique<Library>();
  find(opened, "cublasLtCreate", &library_->create);
  find(opened, "cublasLtMatmulDescCreate", &library_->create_description);
  find(opened, "cublasLtMatmulDescSetAttribute", &library_->set);
  find(opened, "cublasLtMatrixLayoutCreate", &library_->create_layout);
  find(opened, "cublasLtMatmulPreferenceCreate", &library_->create_preference);
  find(opened, "cublasLtMatmulPreferenceSetAttribute", &library_->set_preference);
  find(opened, "cublasLtMatmulAlgoGetHeuristic", &library_->choose);
  find(opened, "cublasLtMatmul", &library_->multiply);
  library_->scratch = std::make_unique<Buffer>(static_cast<int64_t>(kScratchSize));
  if (library_->create(&library_->handle) != CUBLAS_STATUS_SUCCESS) library_ = nullptr;
}

LibraryGemm::~LibraryGemm() = default;

bool LibraryGemm::is_there() const {
  return library_ != nullptr;
}

bool LibraryGemm::multiply(Element element,
                           const void* x,
                           const void* weight,
                           const float* scale,
                           void* y,
                           int64_t rows,
                           int64_t out_features,
                           int64_t in_features,
                           int64_t x_stride,
                           gpuStream_t stream) const {
  const Library& lt = *library_;
  const bool float8 = element == Element::kFloat8E4M3;
  const cudaDataType_t type = float8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  cublasLtMatmulDesc_t description;
  lt.create_description(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  lt.set(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  if (float8) {
    lt.set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale);
    lt.set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale);
  }
  return library_->run(
      description, type, x, weight, y, rows, out_features, in_features, x_stride, stream);
}

bool LibraryGemm::multiply_blocks(const void* x,
                                  const float* x_scales,
                                  const void* weight,
                                  const float* weight_scales,
                                  void* y,
                                  int64_t rows,
                                  int64_t out_features,
                                  int64_t in_features,
                                  gpuStream_t stream) const {
  const Library& lt = *library_;
  cublasLtMatmulDesc_t description;
  lt.create_description(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  lt.set(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  const int32_t of_weight = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const int32_t of_x = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  lt.set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_weight, sizeof of_weight);
  lt.set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_x, sizeof of_x);
  lt.set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &weight_scales, sizeof weight_scales);
  lt.set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x_scales, sizeof x_scales);
  return library_->run(description,
                       CUDA_R_8F_E4M3,
                       x,
                       weight,
                       y,
                       rows,
                       out_features,
                       in_features,
                       in_features,
                       stream);
}

}  // namespace atom::bench
