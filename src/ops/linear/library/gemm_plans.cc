#include "ops/linear/library/gemm_plans.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "ops/linear/ordered/ordered_cuda.h"
#include "ops/linear/ordered/ordered_sm90.h"
#include "tensor/element_of.h"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

constexpr size_t kMaxPlans = 8192;
constexpr size_t kMaxNotedCalls = 8;  // of a kind
// For so many rows the one algorithm of a fixed order is chosen: its tiles are small enough for a
// decode step, and large enough for a prefill.
constexpr int64_t kFixedOrderRows = 128;

#define CUBLAS_CHECK(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kFloat8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      CHECK(dtype == DType::kFloat32);
      return CUDA_R_32F;
  }
}

// The kind of calls whose algorithm all those of a fixed order take that differ from it in rows.
GemmKey representative(const GemmKey& key) {
  GemmKey one = key;
  one.num_rows = kFixedOrderRows;
  one.x_stride = key.in_features;
  one.y_stride = key.out_features;
  return one;
}

// What was chosen on any card.
class Choices {
 public:
  // What stands there now: this, or what was there before.
  GemmAlgorithm add(const GemmKey& key, const GemmAlgorithm& algorithm) {
    const MutexLock lock(&mutex_);
    return chosen_.try_emplace(key, algorithm).first->second;
  }

  std::optional<GemmAlgorithm> find(const GemmKey& key) {
    const MutexLock lock(&mutex_);
    const auto found = chosen_.find(key);
    return found == chosen_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  Mutex mutex_;
  std::unordered_map<GemmKey, GemmAlgorithm, GemmKeyHash> chosen_ GUARDED_BY(mutex_);
};

Choices& choices() {
  static auto* all = new Choices();  // outlives every thread's last call
  return *all;
}

LinearGpuCall ordered_params(const GemmKey& key, const GemmOperands& operands) {
  LinearGpuCall params;
  params.x = operands.x;
  params.weight = operands.weight;
  params.bias = operands.bias;
  params.y = operands.y;
  params.x_stride = key.x_stride;
  params.y_stride = key.y_stride;
  params.num_rows = static_cast<int32_t>(key.num_rows);
  params.out_features = static_cast<int32_t>(key.out_features);
  params.in_features = static_cast<int32_t>(key.in_features);
  params.x_scale = operands.x_scales;
  params.weight_scale = operands.weight_scales;
  params.x_scale_per_row = params.weight_scale_per_row = key.scales == GemmScales::kVectors;
  params.x_element = params.weight_element = stored_element_of(key.dtype);
  params.y_element = params.bias_element = stored_element_of(key.y_dtype);
  return params;
}

}  // namespace

size_t GemmKeyHash::operator()(const GemmKey& key) const {
  size_t hash = 0;
  for (const int64_t part : {key.num_rows,
                             key.out_features,
                             key.in_features,
                             key.x_stride,
                             key.y_stride,
                             static_cast<int64_t>(key.dtype),
                             static_cast<int64_t>(key.y_dtype),
                             static_cast<int64_t>(key.scales),
                             int64_t{key.has_bias},
                             int64_t{key.fast_accumulation},
                             int64_t{key.fixed_order}}) {
    hash = hash * 0x9e3779b97f4a7c15u + static_cast<size_t>(part);
  }
  return hash ^ (hash >> 32);
}

// The library's descriptions of one kind of call. Used under the lock: addresses of scales and bias
// are part of them.
class GemmPlans::Plan {
 public:
  Plan(const CublasLt& lt, const GemmKey& key) : lt_(lt), key_(key) {
    const cudaDataType_t type = data_type(key.dtype), y_type = data_type(key.y_dtype);
    CUBLAS_CHECK(lt_.MatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (key.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, y_type);
    }
    if (key.fast_accumulation) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    if (key.scales == GemmScales::kVectors) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    }
    if (key.scales == GemmScales::kBlocks) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    }
    CUBLAS_CHECK(
        lt_.MatrixLayoutCreate(&weight_, type, key.in_features, key.out_features, key.in_features));
    CUBLAS_CHECK(lt_.MatrixLayoutCreate(&x_, type, key.in_features, key.num_rows, key.x_stride));
    CUBLAS_CHECK(lt_.MatrixLayoutCreate(&y_, y_type, key.out_features, key.num_rows, key.y_stride));
  }

  ~Plan() {
    lt_.MatmulDescDestroy(operation_);
    lt_.MatrixLayoutDestroy(weight_);
    lt_.MatrixLayoutDestroy(x_);
    lt_.MatrixLayoutDestroy(y_);
  }

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::vector<GemmAlgorithm> algorithms(cublasLtHandle_t handle, int max_count) {
    // The library wants to see addresses, of the alignment that calls will have.
    alignas(kGemmScratchAlignment) static const float kAnywhere[64] = {};
    set_addresses({.bias = kAnywhere, .x_scales = kAnywhere, .weight_scales = kAnywhere});
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLAS_CHECK(lt_.MatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      CUBLAS_CHECK(lt_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kGemmScratchSize});
    // Parts of a sum are added in float32, never in y's type.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{key_.fixed_order ? CUBLASLT_REDUCTION_SCHEME_NONE
                                     : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, uint32_t{kGemmAlignment});
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(max_count);
    int count = 0;
    const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
        handle, operation_, weight_, x_, y_, y_, preference, max_count, results.data(), &count);
    CUBLAS_CHECK(lt_.MatmulPreferenceDestroy(preference));
    std::vector<GemmAlgorithm> found;
    if (status != CUBLAS_STATUS_SUCCESS) return found;
    for (int i = 0; i < count; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) found.push_back({false, results[i].algo});
    }
    return found;
  }

  cublasStatus_t run(cublasLtHandle_t handle,
                     const GemmAlgorithm& chosen,
                     const GemmOperands& operands,
                     void* scratch,
                     cudaStream_t stream) {
    if (chosen.is_ordered) {
      const LinearGpuCall params = ordered_params(key_, operands);
      const gpuError_t error = supports_linear_ordered_sm90(params)
                                   ? launch_linear_ordered_sm90(params, stream)
                                   : launch_linear_ordered(params, stream);
      return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
    }
    set_addresses(operands);
    const float one = 1, zero = 0;
    return lt_.Matmul(handle,
                      operation_,
                      &one,
                      operands.weight,
                      weight_,
                      operands.x,
                      x_,
                      &zero,
                      operands.y,
                      y_,
                      operands.y,
                      y_,
                      &chosen.library,
                      scratch,
                      kGemmScratchSize,
                      stream);
  }

  // None when the library cannot multiply so.
  std::optional<GemmAlgorithm> algorithm;

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(lt_.MatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)));
  }

  void set_addresses(const GemmOperands& operands) {
    if (key_.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (key_.scales == GemmScales::kNone) return;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.weight_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.x_scales);
  }

  const CublasLt& lt_;
  const GemmKey key_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t y_ = nullptr;
};

GemmPlans::GemmPlans(const CublasLt& lt) : lt_(lt) {
  CUBLAS_CHECK(lt_.Create(&handle_));
}

GemmPlans& GemmPlans::current() {
  static PerCard<GemmPlans*> plans;
  return *plans.get(
      [] { return new GemmPlans(*cublaslt()); });  // outlives every thread's last call
}

GemmPlans::Plan& GemmPlans::plan_of(const GemmKey& key) {
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() == kMaxPlans) plans_.clear();
    auto plan = std::make_unique<Plan>(lt_, key);
    if (const auto chosen = chosen_.find(key); chosen != chosen_.end()) {
      plan->algorithm = chosen->second;
    } else if (const GemmKey one = representative(key); key.fixed_order && !(key == one)) {
      plan->algorithm = plan_of(one).algorithm;
    } else if (const auto first = plan->algorithms(handle_, 1); !first.empty()) {
      plan->algorithm = first.front();
    }
    found = plans_.emplace(key, std::move(plan)).first;
  }
  return *found->second;
}

bool GemmPlans::supports(const GemmKey& key) {
  const MutexLock lock(&mutex_);
  return plan_of(key).algorithm.has_value();
}

void GemmPlans::multiply(const GemmKey& key,
                         const GemmOperands& operands,
                         void* scratch,
                         void* queue) {
  const MutexLock lock(&mutex_);
  if (is_noting_) note(key, operands, scratch);
  Plan& plan = plan_of(key);
  CHECK(plan.algorithm.has_value());
  CUBLAS_CHECK(
      plan.run(handle_, *plan.algorithm, operands, scratch, static_cast<cudaStream_t>(queue)));
}

void GemmPlans::start_noting() {
  const MutexLock lock(&mutex_);
  is_noting_ = true;
}

std::vector<NotedCalls> GemmPlans::stop_noting() {
  const MutexLock lock(&mutex_);
  is_noting_ = false;
  return std::exchange(noted_, {});
}

void GemmPlans::note(const GemmKey& key, const GemmOperands& operands, void* scratch) {
  if (chosen_.contains(key)) return;
  auto found = std::find_if(
      noted_.begin(), noted_.end(), [&](const NotedCalls& calls) { return calls.key == key; });
  if (found == noted_.end()) found = noted_.insert(found, {key, scratch, {}});
  std::vector<GemmOperands>& known = found->operands;
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const GemmOperands& other) {
    return other.weight == operands.weight;
  });
  if (!is_known && known.size() < kMaxNotedCalls) known.push_back(operands);
}

std::vector<GemmAlgorithm> GemmPlans::candidates(const GemmKey& key, int max_count) {
  const MutexLock lock(&mutex_);
  std::vector<GemmAlgorithm> found = plan_of(key).algorithms(handle_, max_count);
  if (!key.fixed_order) return found;
  const std::optional<GemmAlgorithm>& common = plan_of(representative(key)).algorithm;
  if (!common) return {};
  found.insert(found.begin(), *common);
  if (key.num_rows <= kOrderedRows && supports_linear_ordered(ordered_params(key, {}))) {
    found.push_back({.is_ordered = true});
  }
  return found;
}

bool GemmPlans::try_algorithm(const GemmKey& key,
                              const GemmAlgorithm& algorithm,
                              const GemmOperands& operands,
                              void* scratch,
                              void* queue) {
  const MutexLock lock(&mutex_);
  return plan_of(key).run(
             handle_, algorithm, operands, scratch, static_cast<cudaStream_t>(queue)) ==
         CUBLAS_STATUS_SUCCESS;
}

void GemmPlans::use(const GemmKey& key, const GemmAlgorithm& algorithm) {
  const MutexLock lock(&mutex_);
  chosen_[key] = algorithm;
  plan_of(key).algorithm = algorithm;
}

void GemmPlans::choose(const GemmKey& key, const GemmAlgorithm& algorithm) {
  use(key, choices().add(key, algorithm));
}

std::optional<GemmAlgorithm> GemmPlans::follow_other_card(const GemmKey& key) {
  const std::optional<GemmAlgorithm> chosen = choices().find(key);
  if (chosen) use(key, *chosen);
  return chosen;
}

bool GemmPlans::fits_ordered(const GemmKey& key, const GemmOperands& operands) {
  return supports_linear_ordered_sm90(ordered_params(key, operands));
}

void GemmPlans::admit_ordered(const GemmKey& key) {
  const MutexLock lock(&mutex_);
  with_ordered_.insert(representative(key));
}

bool GemmPlans::admits_ordered(const GemmKey& key) {
  const MutexLock lock(&mutex_);
  return with_ordered_.contains(representative(key));
}

}  // namespace atom::ops
