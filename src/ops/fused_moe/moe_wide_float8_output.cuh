// Inside fused_moe by wide tiles in FP8 on Hopper: what becomes of a tile's sums without the
// activation.
#pragma once

#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// A warp has 32 outputs that follow each other, of each product by turns of eight.
class ResultOutput {
 public:
  __device__ ResultOutput(const MoeWideFloat8Args& args, uint32_t memory)
      : args_(args),
        rows_(memory + at_.warp * kResultsSize),
        choices_(memory + kConsumerWarps * kResultsSize + at_.warpgroup * kChoicesSize) {}

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
    // Several eights of tokens are on their way at a time, so that each does not wait for itself.
#pragma unroll
    for (int begin = 0; begin < 2 * kUnits; begin += kResultEights) {
      const int end = begin + kResultEights < 2 * kUnits ? begin + kResultEights : 2 * kUnits;
      float2 weights[kResultEights];
      int choices[kResultEights];
#pragma unroll
      for (int eight = begin; eight < end; ++eight) {
        weights[eight - begin] = weights_of(eight * 8 + 2 * at_.q);
        choices[eight - begin] = choice_of(eight * 8 + at_.g);
      }
      __syncwarp();
#pragma unroll
      for (int eight = begin; eight < end; ++eight) {
        uint32_t matrices[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &sums[i % 2][4 * eight + i / 2 * 2];
          matrices[i] = bits_of_pair<BFloat16>(weights[eight - begin].x * pair[0],
                                               weights[eight - begin].y * pair[1]);
        }
        store_transposed(rows_ + (eight - begin) * kResultSize + at_.lane % 8 * kResultStride +
                             at_.lane / 8 * kVectorSize,
                         matrices);
      }
      __syncwarp();
      uint4 outputs[kResultEights];
#pragma unroll
      for (int eight = begin; eight < end; ++eight) {
        outputs[eight - begin] = load_shared(rows_ + (eight - begin) * kResultSize +
                                             at_.g * kResultStride + at_.q * kVectorSize);
      }
#pragma unroll
      for (int eight = begin; eight < end; ++eight) {
        const int choice = choices[eight - begin];
        if (choice == kNoChoice || !exists) continue;
        store_bits(out + int64_t{choice} * args_.num_outputs, outputs[eight - begin]);
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
