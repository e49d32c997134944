// Inside fused_moe for few tokens by experts in FP8 on Hopper: rows of x become codes, by the warps
// that multiply.
#pragma once

#include "ops/fused_moe/moe_skinny_output.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::device::moe_skinny {

// A token's row, as a thread has it.
class RowCodes {
 public:
  __device__ void load(const FusedMoeGpuCall& call, int token) {
    const BFloat16* const x = static_cast<const BFloat16*>(call.x) + token * call.x_stride;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      vectors_[i] = uint4{};
      if (column(i) < call.hidden_size) {
        vectors_[i] = gpu_load_from_l2(reinterpret_cast<const uint4*>(x + column(i)));
      }
    }
  }

  __device__ void quantize() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint4 own[1] = {vectors_[i]};
      LargestMagnitude<BFloat16> largest;
      largest.see(own[0]);
      scales_[i] = scale_of_largest(reduce_lanes(largest.value(), kGroupLanes, Largest()));
      quantize_vectors<BFloat16, true>(
          own, scales_[i], [&](int, const Pack<Float8, kLength>& codes) { codes_[i] = codes; });
    }
  }

  __device__ void store(const FusedMoeGpuCall& call,
                        const MoeSkinnyScratch& scratch,
                        int row) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column(i) >= call.hidden_size) continue;
      uint8_t* const target = scratch.x + int64_t{row} * call.hidden_size + column(i);
      *reinterpret_cast<Pack<Float8, kLength>*>(target) = codes_[i];
      if (threadIdx.x % kGroupLanes != 0) continue;
      scratch.x_scales[int64_t{column(i) / kMoeSkinnyGroup} * scratch.num_rows + row] = scales_[i];
    }
  }

 private:
  static constexpr int kLength = kVectorSize / 2;
  static constexpr int kStep = kNumConsumers * kLength;
  static constexpr int kCount = kMaxMoeSkinnySize / kStep;
  static constexpr int kGroupLanes = kMoeSkinnyGroup / kLength;

  static __device__ int column(int i) {
    return static_cast<int>(threadIdx.x) * kLength + i * kStep;
  }

  uint4 vectors_[kCount];
  Pack<Float8, kLength> codes_[kCount];
  float scales_[kCount];
};

// A block's tokens, the first of which `codes` has loaded: their codes come to all rows that they
// have. Of those without experts here y becomes zeros.
template <int kColumns>
__device__ void make_rows(const MoeSkinnyArgs& args,
                          const Shared<kColumns>& shared,
                          RowCodes& codes) {
  const FusedMoeGpuCall& call = args.call;
  const PlanMemory& plan = shared.plan();
  for (int token = blockIdx.x; token < call.num_tokens; token += gridDim.x) {
    if (token != blockIdx.x) codes.load(call, token);
    codes.quantize();
    for (int j = 0; j < call.top_k; ++j) {
      const int row = plan.rows[token * call.top_k + j];
      if (row >= 0) codes.store(call, args.scratch, row);
    }
    if (plan.num_choices[token] > 0) continue;
    for (int column = threadIdx.x; column < call.hidden_size; column += kNumConsumers) {
      store_y(call, plan, args.scratch.results, {token, -1, -1, -1}, column);
    }
  }
  publish_to_copies();
  synchronize_first<kNumConsumers>();
  if (threadIdx.x == 0) count_at(&args.scratch.counters->rows);
}

}  // namespace atom::ops::device::moe_skinny
