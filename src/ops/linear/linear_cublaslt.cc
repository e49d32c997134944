// linear() by cuBLASLt. y [T, N] row by row is D [N, T] column by column, and D = op(W) x with W's
// rows as columns: the multiplication that the library does best. Plans are made by its heuristic
// at a shape's first use.
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "ops/linear/cublaslt.h"
#include "ops/linear/linear_variants.h"
#include "tensor/gpu_api.h"

namespace atom::ops {
namespace {

constexpr int64_t kAlignment = 16;          // bytes, of every row and matrix
constexpr int64_t kScratchSize = 32 << 20;  // bytes: what NVIDIA recommends for Hopper
constexpr int64_t kScratchAlignment = 256;  // bytes
constexpr size_t kMaxPlans = 8192;

#define CUBLAS_CHECK(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      CHECK(dtype == DType::kFloat32);
      return CUDA_R_32F;
  }
}

struct PlanKey {
  int64_t num_rows, out_features, in_features, x_stride, y_stride;
  DType dtype, y_dtype;
  bool has_bias;

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    size_t hash = 0;
    for (const int64_t part : {key.num_rows,
                               key.out_features,
                               key.in_features,
                               key.x_stride,
                               key.y_stride,
                               static_cast<int64_t>(key.dtype),
                               static_cast<int64_t>(key.y_dtype),
                               int64_t{key.has_bias}}) {
      hash = hash * 0x9e3779b97f4a7c15u + static_cast<size_t>(part);
    }
    return hash ^ (hash >> 32);
  }
};

struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

// The library's handle and the plans made so far, for all threads.
class Multiplier {
 public:
  explicit Multiplier(const CublasLt& lt) : lt_(lt) { CUBLAS_CHECK(lt_.Create(&handle_)); }

  void multiply(const LinearCall& call, void* scratch, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    const PlanKey key{call.x.size(0),
                      call.weight.out_features,
                      call.weight.in_features,
                      call.x.stride(0),
                      call.y.stride(0),
                      call.weight.dtype(),
                      call.y.dtype(),
                      call.bias.defined()};
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      if (plans_.size() == kMaxPlans) clear();
      found = plans_.emplace(key, make_plan(key)).first;
    }
    const Plan& plan = found->second;
    if (key.has_bias) {
      const void* bias = call.bias.raw_data();
      CUBLAS_CHECK(lt_.MatmulDescSetAttribute(
          plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    const float one = 1, zero = 0;
    CUBLAS_CHECK(lt_.Matmul(handle_,
                            plan.operation,
                            &one,
                            call.weight.data.raw_data(),
                            plan.weight,
                            call.x.raw_data(),
                            plan.x,
                            &zero,
                            call.y.raw_data(),
                            plan.y,
                            call.y.raw_data(),
                            plan.y,
                            &plan.algorithm,
                            scratch,
                            kScratchSize,
                            stream));
  }

 private:
  Plan make_plan(const PlanKey& key) {
    Plan plan;
    const cudaDataType_t type = data_type(key.dtype), y_type = data_type(key.y_dtype);
    CUBLAS_CHECK(lt_.MatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    CUBLAS_CHECK(lt_.MatmulDescSetAttribute(
        plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    if (key.has_bias) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      CUBLAS_CHECK(lt_.MatmulDescSetAttribute(
          plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
      CUBLAS_CHECK(lt_.MatmulDescSetAttribute(
          plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &y_type, sizeof(y_type)));
    }
    CUBLAS_CHECK(lt_.MatrixLayoutCreate(
        &plan.weight, type, key.in_features, key.out_features, key.in_features));
    CUBLAS_CHECK(
        lt_.MatrixLayoutCreate(&plan.x, type, key.in_features, key.num_rows, key.x_stride));
    CUBLAS_CHECK(
        lt_.MatrixLayoutCreate(&plan.y, y_type, key.out_features, key.num_rows, key.y_stride));
    choose_algorithm(&plan);
    return plan;
  }

  void choose_algorithm(Plan* plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLAS_CHECK(lt_.MatmulPreferenceCreate(&preference));
    const uint64_t scratch_size = kScratchSize;
    CUBLAS_CHECK(lt_.MatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch_size, sizeof(scratch_size)));
    // Parts of a sum are added in float32, never in y's type.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CUBLAS_CHECK(lt_.MatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
    cublasLtMatmulHeuristicResult_t result{};
    int num_results = 0;
    CUBLAS_CHECK(lt_.MatmulAlgoGetHeuristic(handle_,
                                            plan->operation,
                                            plan->weight,
                                            plan->x,
                                            plan->y,
                                            plan->y,
                                            preference,
                                            1,
                                            &result,
                                            &num_results));
    CHECK(num_results == 1);
    plan->algorithm = result.algo;
    CUBLAS_CHECK(lt_.MatmulPreferenceDestroy(preference));
  }

  void clear() {
    for (const auto& [key, plan] : plans_) {
      lt_.MatmulDescDestroy(plan.operation);
      lt_.MatrixLayoutDestroy(plan.weight);
      lt_.MatrixLayoutDestroy(plan.x);
      lt_.MatrixLayoutDestroy(plan.y);
    }
    plans_.clear();
  }

  const CublasLt& lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<PlanKey, Plan, PlanKeyHash> plans_;
};

Multiplier& multiplier() {
  static Multiplier* shared = new Multiplier(*cublaslt());  // outlives every thread's last call
  return *shared;
}

bool is_aligned(const void* data, int64_t stride, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0 &&
         stride * dtype_size(dtype) % kAlignment == 0;
}

}  // namespace

bool fits_cublaslt(const LinearCall& call) {
  const LinearWeight& weight = call.weight;
  return cublaslt().ok() && weight.dtype() != DType::kFloat8E4M3 &&
         weight.layout == WeightLayout::kRowMajor &&
         is_aligned(weight.data.raw_data(), weight.in_features, weight.dtype()) &&
         is_aligned(call.x.raw_data(), call.x.stride(0), call.x.dtype()) &&
         is_aligned(call.y.raw_data(), call.y.stride(0), call.y.dtype()) &&
         weight.out_features % 8 == 0 &&
         (!call.bias.defined() || (call.bias.dtype() == call.y.dtype() &&
                                   is_aligned(call.bias.raw_data(), 0, call.bias.dtype())));
}

void linear_cublaslt(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const Tensor memory = scratch.tensor({kScratchSize + kScratchAlignment}, DType::kUInt8);
  if (stream.is_dry_run()) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory.raw_data());
  const uintptr_t aligned = (begin + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  multiplier().multiply(
      call, reinterpret_cast<void*>(aligned), static_cast<cudaStream_t>(stream.queue().handle()));
}

}  // namespace atom::ops
