// Inside fused_moe for few tokens by experts in FP8 on Hopper: rows of x become codes, by the warps
// that multiply.
#pragma once

#include "ops/fused_moe/moe_skinny_output.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::device::moe_skinny {

// A token's row, of kCount runs of columns, as a thread has it.
template <int kCount>
class RowCodes {
 public:
  static constexpr int kLength = kVectorSize / 2;
  static constexpr int kStep = kNumConsumers * kLength;

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

  // As a column of resident rows, as the copy engine would place it.
  template <typename Shared>
  __device__ void store(const FusedMoeGpuCall& call, const Shared& shared, int own_column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column(i) >= call.hidden_size) continue;
      const int panel = column(i) / kPanelSize, byte = column(i) % kPanelSize;
      const int vector = (byte / kVectorSize ^ own_column % 8) * kVectorSize;
      uint2 bits;
      memcpy(&bits, &codes_[i], sizeof bits);
      asm volatile(
          "st.shared.v2.u32 [%0], {%1, %2};" ::"r"(
              shared.resident_x(panel) + own_column * kPanelSize + vector + byte % kVectorSize),
          "r"(bits.x),
          "r"(bits.y)
          : "memory");
      if (threadIdx.x % kGroupLanes != 0) continue;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared.resident_scales(panel) +
                                                   own_column * int{sizeof(float)}),
                   "f"(scales_[i])
                   : "memory");
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
  static constexpr int kGroupLanes = kMoeSkinnyGroup / kLength;

  static __device__ int column(int i) {
    return static_cast<int>(threadIdx.x) * kLength + i * kStep;
  }

  uint4 vectors_[kCount];
  Pack<Float8, kLength> codes_[kCount];
  float scales_[kCount];
};

template <bool kResident>
using OwnCodes = RowCodes<(kResident ? kMaxResidentSize : kMaxMoeSkinnySize) / RowCodes<1>::kStep>;

// Of a token without experts here y becomes zeros.
template <typename Shared>
__device__ void clear_y(const MoeSkinnyArgs& args, const Shared& shared, int token) {
  if (shared.plan().num_choices[token] > 0) return;
  for (int column = threadIdx.x; column < args.call.hidden_size; column += kNumConsumers) {
    store_y(args.call, shared.plan(), args.scratch.results, {token, -1, -1, -1}, column);
  }
}

// A block's tokens, the first of which `codes` has loaded: their codes come to all rows that they
// have.
template <int kColumns, bool kResident>
__device__ void make_rows(const MoeSkinnyArgs& args,
                          const Shared<kColumns, kResident>& shared,
                          OwnCodes<kResident>& codes) {
  const FusedMoeGpuCall& call = args.call;
  const PlanMemory& plan = shared.plan();
  for (int token = blockIdx.x; token < call.num_tokens; token += gridDim.x) {
    if (token != blockIdx.x) codes.load(call, token);
    codes.quantize();
    for (int j = 0; j < call.top_k; ++j) {
      const int row = plan.rows[token * call.top_k + j];
      if (row >= 0) codes.store(call, args.scratch, row);
    }
    clear_y(args, shared, token);
  }
  publish_to_copies();
  synchronize_first<kNumConsumers>();
  if (threadIdx.x == 0) count_at(&args.scratch.counters->rows);
}

// All tokens' codes come to the block's own columns. `codes` has loaded the first one's.
template <int kColumns, bool kResident>
__device__ void make_columns(const MoeSkinnyArgs& args,
                             const Shared<kColumns, kResident>& shared,
                             OwnCodes<kResident>& codes) {
  const FusedMoeGpuCall& call = args.call;
  for (int token = 0; token < call.num_tokens; ++token) {
    OwnCodes<kResident> next;
    if (token + 1 < call.num_tokens) next.load(call, token + 1);
    codes.quantize();
    codes.store(call, shared, token);
    codes = next;
  }
  fence_before_copies();
  synchronize_first<kNumConsumers>();
  if (blockIdx.x < call.num_tokens) clear_y(args, shared, blockIdx.x);
}

}  // namespace atom::ops::device::moe_skinny
