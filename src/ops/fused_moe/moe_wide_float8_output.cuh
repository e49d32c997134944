// Inside fused_moe by wide tiles in FP8 on Hopper: what becomes of a tile's sums without the
// activation.
#pragma once

#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// A warp has 32 outputs that follow each other, of each product by turns of eight.
class ResultOutput {
 public:
  __device__ ResultOutput(const MoeWideFloat8Args& args, const Shared& shared)
      : args_(args),
        rows_(shared.output() + at_.warp * kResultsSize),
        choices_(shared.output() + kConsumerWarps * kResultsSize + at_.warpgroup * kChoicesSize) {}

  // A thread asks for the choice of a token, and then for its weight.
  __device__ void begin(const Tile& tile) {
    const int row = tile.first_row + static_cast<int>(threadIdx.x) % kTileTokens;
    choice_ = row < tile.end_row ? gpu_load_from_l2(args_.scratch.shared.choices + row) : kNoChoice;
  }
  __device__ void continue_to_begin() {
    weight_ = choice_ == kNoChoice ? 0.0f : gpu_load_from_l2(args_.call.weights + choice_);
  }

  template <int kUnits>
  __device__ __forceinline__ void store(const Tile& tile, Sums<kUnits>& sums) const {
    static_assert(kWarpgroupSize == kTileTokens);
    share_choices();
    const int first =
        (tile.column_tile * 2 + at_.warpgroup) * kBlockRows + at_.warp % 4 * kWarpOutputs;
    const int own = first + at_.g;
    scale_rows<kUnits>(args_, tile, {{own, own + 16}, {own + 8, own + 24}}, sums);
    auto* const out = static_cast<BFloat16*>(args_.scratch.results) + first + at_.q * 8;
    const bool exists = first + at_.q * 8 < args_.num_outputs;
#pragma unroll
    for (int eight = 0; eight < 2 * kUnits; ++eight) {
      const uint32_t rows = rows_ + eight % 2 * (kResultsSize / 2);
      const float2 weights = weights_of(eight * 8 + 2 * at_.q);
      uint32_t matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &sums[i % 2][4 * eight + i / 2 * 2];
        matrices[i] = bits_of_pair<BFloat16>(weights.x * pair[0], weights.y * pair[1]);
      }
      store_transposed(rows + at_.lane % 8 * kResultStride + at_.lane / 8 * kVectorSize, matrices);
      __syncwarp();
      const int choice = choice_of(eight * 8 + at_.g);
      if (choice != kNoChoice && exists) {
        store_bits(out + int64_t{choice} * args_.num_outputs,
                   load_shared(rows + at_.g * kResultStride + at_.q * kVectorSize));
      }
    }
  }

 private:
  static constexpr int kNoChoice = -1;
  static constexpr int kWarpOutputs = 32;

  // Of the warpgroup's tokens: weights, then choices.
  __device__ void share_choices() const {
    constexpr int kFirstBarrier = 4;
    const uint32_t own = choices_ + threadIdx.x % kTileTokens * 4;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(own), "f"(weight_) : "memory");
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(own + kTileTokens * 4), "r"(choice_) : "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(kFirstBarrier + at_.warpgroup), "n"(kWarpgroupSize)
                 : "memory");
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
  const uint32_t rows_, choices_;
  int choice_ = kNoChoice;
  float weight_ = 0;
};

}  // namespace atom::ops::device::wide8
