// Inside fused_moe by wide tiles in FP8 on Hopper: what becomes of a tile's sums without the
// activation.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// A warp has 32 outputs that follow each other, of each product by turns of eight. A warpgroup's of
// 16 tokens at a time are put together in shared memory, from where the copy engine takes each
// token's, while the next ones are put elsewhere.
class ResultOutput {
 public:
  __device__ ResultOutput(const MoeWideFloat8Args& args, uint32_t memory)
      : args_(args),
        results_(memory + at_.warpgroup * kResultsSize),
        choices_(memory + 2 * kResultsSize + at_.warpgroup * kChoicesSize) {}

  // A thread asks for the choice of a token, and then for its weight.
  __device__ void begin(const Tile& tile) {
    const int row = tile.first_row + static_cast<int>(threadIdx.x) % kTileTokens;
    choice_ = row < tile.end_row ? gpu_load_from_l2(args_.scratch.shared.choices + row) : kNoChoice;
  }
  __device__ void continue_to_begin() {
    weight_ = choice_ == kNoChoice ? 0.0f : gpu_load_from_l2(args_.call.weights + choice_);
  }

  template <int kUnits>
  __device__ __forceinline__ void store(const Tile& tile, Sums<kUnits>& sums) {
    static_assert(kWarpgroupSize == kTileTokens);
    share_choices();
    const int first = (tile.column_tile * 2 + at_.warpgroup) * kBlockRows;
    const int own = first + at_.warp % 4 * kWarpOutputs + at_.g;
    scale_rows<kUnits>(args_, tile, {{own, own + 16}, {own + 8, own + 24}}, sums);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const uint32_t results = results_ + buffer_ * kResultSize;
      put<kUnits>(unit, results, sums);
      fence_before_copies();
      synchronize();
      copy(unit, results, first);
      buffer_ = buffer_ + 1 < kResultBuffers ? buffer_ + 1 : 0;
    }
  }

  // Returns when all is stored.
  __device__ void finish() const {
    wait_for_stores();
  }

 private:
  static constexpr int kNoChoice = -1;
  static constexpr int kWarpOutputs = 32;

  template <int kUnits>
  __device__ __forceinline__ void put(int unit, uint32_t results, const Sums<kUnits>& sums) const {
    const uint32_t target = results + at_.lane % 8 * kResultStride +
                            at_.warp % 4 * kWarpOutputs * 2 + at_.lane / 8 * kVectorSize;
#pragma unroll
    for (int eight = 2 * unit; eight < 2 * unit + 2; ++eight) {
      const float2 weights = weights_of(eight * 8 + 2 * at_.q);
      uint32_t matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &sums[i % 2][4 * eight + i / 2 * 2];
        matrices[i] = bits_of_pair<BFloat16>(weights.x * pair[0], weights.y * pair[1]);
      }
      store_transposed(target + eight % 2 * 8 * kResultStride, matrices);
    }
  }

  // Some lanes of each warp, a token each. What is put to the buffer after the next waits for this.
  __device__ __forceinline__ void copy(int unit, uint32_t results, int first) const {
    constexpr int kLaneTokens = kTokenUnit / 4;
    static_assert(kResultBuffers >= 3);
    if (at_.lane >= kLaneTokens) return;
    const int token = at_.warp % 4 * kLaneTokens + at_.lane;
    const int choice = choice_of(unit * kTokenUnit + token);
    const int count = min(kBlockRows, args_.num_outputs - first);
    if (choice != kNoChoice && count > 0) {
      store_bulk(static_cast<BFloat16*>(args_.scratch.results) +
                     int64_t{choice} * args_.num_outputs + first,
                 results + token * kResultStride,
                 count * int{sizeof(BFloat16)});
    }
    commit_stores();
    wait_for_reads_of_stores<1>();
  }

  __device__ void synchronize() const {
    constexpr int kFirstBarrier = 4;
    asm volatile("bar.sync %0, %1;" ::"r"(kFirstBarrier + at_.warpgroup), "n"(kWarpgroupSize)
                 : "memory");
  }

  // Of the warpgroup's tokens: weights, then choices.
  __device__ void share_choices() const {
    const uint32_t own = choices_ + threadIdx.x % kTileTokens * 4;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(own), "f"(weight_) : "memory");
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(own + kTileTokens * 4), "r"(choice_) : "memory");
    synchronize();
  }
  __device__ float2 weights_of(int token) const {
    float2 weights;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(weights.x), "=f"(weights.y)
                 : "r"(choices_ + token * 4)
                 : "memory");
    return weights;
  }
  __device__ int choice_of(int token) const {
    int choice;
    asm volatile("ld.shared.s32 %0, [%1];"
                 : "=r"(choice)
                 : "r"(choices_ + (kTileTokens + token) * 4)
                 : "memory");
    return choice;
  }

  const MoeWideFloat8Args& args_;
  const Place at_;
  const uint32_t results_, choices_;
  int buffer_ = 0;
  int choice_ = kNoChoice;
  float weight_ = 0;
};

}  // namespace atom::ops::device::wide8
