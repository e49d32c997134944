// The sums of tokens' results: as many threads as there are vectors, and as many loads at once as a
// token has results.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_choices.cuh"
#include "ops/fused_moe/moe_many.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 64;
constexpr int kVectorElements = kVectorSize / 2;
constexpr int kAtOnce = 8, kStep = 4;  // choices

__device__ void prefetch_choices(const FusedMoeGpuCall& call, const int32_t* rows, int token) {
  if (static_cast<int>(threadIdx.x) >= call.top_k) return;
  const int64_t choice = int64_t{token} * call.top_k + threadIdx.x;
  prefetch_to_l2(call.ids + choice);
  if (rows == nullptr) return;
  prefetch_to_l2(call.weights + choice);
  prefetch_to_l2(rows + choice);
}

// A token's results from choice `first` on, in the order of choices; whole warps call it.
class SomeResults {
 public:
  __device__ SomeResults(const FusedMoeGpuCall& call, int token, int first)
      : call_(call), token_(token), first_(first) {}

  // Weighted already. What has no result is loaded and not added, so that no load waits for ids.
  __device__ void load(const BFloat16* results) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) load(j, results, token_ * call_.top_k + choice(j));
    existing_ = existing_choices(call_, token_, first_);
  }

  // To be weighted, in the order of experts.
  __device__ void load(const BFloat16* results, const int32_t* rows) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int own = token_ * call_.top_k + choice(lane);
    int row = gpu_load_from_l2(rows + own);
    weight_ = gpu_load_from_l2(call_.weights + own);
    existing_ = existing_choices(call_, token_, first_);
    if (!exists(lane)) row = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) load(j, results, __shfl_sync(kAllLanes, row, j));
  }

  __device__ void add_to(float (&total)[kVectorElements]) const {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      float values[kVectorElements];
      to_floats<BFloat16>(vectors_[j], values);
      const float weight = __shfl_sync(kAllLanes, weight_, j);
#pragma unroll
      for (int v = 0; v < kVectorElements; ++v) {
        total[v] = exists(j) ? fmaf(weight, values[v], total[v]) : total[v];
      }
    }
  }

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;

  __device__ int choice(int j) const {
    return min(first_ + j, call_.top_k - 1);
  }
  __device__ bool exists(int j) const {
    return (existing_ >> j & 1) != 0;
  }
  // Under few conditions: a thread has few registers for them, and loads that had one each would
  // be waited for one by one.
  __device__ void load(int j, const BFloat16* results, int64_t row) {
    const bool is_wanted = results != nullptr && first_ + j / kStep * kStep < call_.top_k;
    vectors_[j] = is_wanted ? load_bits_from_l2(results + row * call_.hidden_size) : uint4{};
  }

  const FusedMoeGpuCall& call_;
  const int token_, first_;
  uint4 vectors_[kAtOnce];
  uint32_t existing_ = 0;
  float weight_ = 1;  // of the lane's choice
};

// With `rows` of choices results are weighted here, else they are already.
template <typename Y, bool kOrdered>
__global__ void __launch_bounds__(kThreads)
    add_results(const __grid_constant__ FusedMoeGpuCall call,
                const void* results,
                const int32_t* rows) {
  const int token = blockIdx.x;
  const int column = (blockIdx.y * kThreads + threadIdx.x) * kVectorElements;
  const bool has_columns = column < call.hidden_size;
  const auto* const source = has_columns ? static_cast<const BFloat16*>(results) + column : nullptr;
  allow_next_grid();
  // Matrices of experts have driven them out of the cache.
  prefetch_choices(call, kOrdered ? rows : nullptr, token);
  wait_for_previous_grid();
  float total[kVectorElements] = {};
#pragma unroll 1
  for (int first = 0; first < call.top_k; first += kAtOnce) {
    SomeResults some(call, token, first);
    if constexpr (kOrdered) {
      some.load(source, rows);
    } else {
      some.load(source);
    }
    some.add_to(total);
  }
  if (!has_columns) return;
  store_rounded(total, static_cast<Y*>(call.y) + token * call.y_stride + column);
}

}  // namespace

gpuError_t add_moe_results(const FusedMoeGpuCall& call, const void* results, gpuStream_t stream) {
  return add_moe_rows(call, results, nullptr, stream);
}

gpuError_t add_moe_rows(const FusedMoeGpuCall& call,
                        const void* results,
                        const int32_t* rows,
                        gpuStream_t stream) {
  constexpr int kColumns = kThreads * kVectorElements;
  const dim3 grid(call.num_tokens, (call.hidden_size + kColumns - 1) / kColumns);
  gpuError_t error = cudaSuccess;
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    auto* const kernel = rows == nullptr ? &add_results<Y, false> : &add_results<Y, true>;
    error = launch(kernel, grid, dim3(kThreads), 0, stream, true, call, results, rows);
  });
  return error;
}

}  // namespace atom::ops
