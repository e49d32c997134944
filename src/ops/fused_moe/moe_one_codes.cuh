// Inside fused_moe for one token by experts in FP8 on Hopper: what matrices are multiplied by, as
// codes with a scale for each 128, and how blocks tell each other what is activated.
//
// A word of an activated value says by itself that the value is there: it is not zero. So memory is
// asked once, and nobody waits for more than what it needs. Who is the last to read makes all words
// zero again.
#pragma once

#include "ops/device/words_of_blocks.cuh"
#include "ops/fused_moe/moe_one_stage.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::device::moe_one {

// Of scratch memory: how many blocks have read what is activated of their token.
__device__ inline int32_t* own_counter(const MoeOneArgs& args) {
  return args.scratch.words + own_token();
}
// And what that is.
__device__ inline int32_t* own_words(const MoeOneArgs& args) {
  return args.scratch.words + kNumMoeOneCounters +
         own_token() * args.call.top_k * args.call.intermediate_size;
}

__device__ inline void publish_activated(const MoeOneArgs& args, int place, float value) {
  // No number has the word zero.
  const uint32_t word = value == value ? ~__float_as_uint(value) : 0x80000000u;
  store_for_others(own_words(args) + place, word);
}

// By the warps that multiply. A row of codes is made by eight lanes of one, which have four vectors
// of four values each.
class CodeWriter {
 public:
  __device__ CodeWriter(const MoeOneArgs& args, Shared& shared)
      : args_(args), shared_(shared), lane_(static_cast<int>(threadIdx.x) % kLanes) {}

  __device__ void store(Pass pass) const {
    const bool is_second = pass == Pass::kSecondMatrix;
    const int num_panels =
        is_second ? shared_.num_choices * args_.down.num_panels : args_.gate_up.num_panels;
    const int warp_panel = static_cast<int>(threadIdx.x) / kWarpSize * kAtOnce;
    const int place = static_cast<int>(threadIdx.x) % kWarpSize / kLanes;
#pragma unroll 1
    for (int first = warp_panel; first < num_panels; first += kWarps * kAtOnce) {
      const int panel = first + place;
      const bool exists = panel < num_panels;
      int row = panel;
      float weight = 1;
      if (is_second && exists) {
        const int at_once = args_.choices_at_once * args_.down.num_panels;
        row += panel / at_once * (kStagePanels - at_once);
        weight = shared_.choices[panel / args_.down.num_panels].weight;
      }
      uint4 vectors[kVectors] = {};
      if (is_second) {
        load_activated(panel, exists, vectors);
      } else if (exists) {
        load_x(panel, vectors);
      }
      store_row(row, weight, exists, vectors);
    }
    // The matrix units read them.
    fence_before_copies();
  }

 private:
  static constexpr int kVectors = 4, kLanes = kPanel / (4 * kVectors);
  static constexpr int kAtOnce = kWarpSize / kLanes;  // rows

  // Of a lane's i-th vector.
  __device__ int column(int i) const {
    return (i * kLanes + lane_) * 4;
  }

  __device__ void load_x(int panel, uint4 (&vectors)[kVectors]) const {
    const BFloat16* const x = x_of(args_.call, own_token()) + panel * kPanel;
    uint2 pairs[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      pairs[i] = gpu_load_from_l2(reinterpret_cast<const uint2*>(x + column(i)));
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const auto [low, high] = pairs[i];
      vectors[i] = {low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u};
    }
  }

  // By a warp, when all of it is there.
  __device__ void load_activated(int panel, bool exists, uint4 (&vectors)[kVectors]) const {
    const int32_t* const words = own_words(args_) + panel * kPanel;
    bool is_there = false;
#pragma unroll 1
    while (!is_there) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (exists) vectors[i] = load_of_others(words + column(i));
      }
      is_there = true;
#pragma unroll
      for (const uint4& own : vectors) {
        is_there &= own.x != 0 && own.y != 0 && own.z != 0 && own.w != 0;
      }
      is_there = __all_sync(0xffffffffu, is_there || !exists);
    }
#pragma unroll
    for (uint4& own : vectors) own = {~own.x, ~own.y, ~own.z, ~own.w};
  }

  __device__ void store_row(int row,
                            float weight,
                            bool exists,
                            const uint4 (&vectors)[kVectors]) const {
    LargestMagnitude<float> largest;
#pragma unroll
    for (const uint4& own : vectors) largest.see(own);
    const float scale = scale_of_largest(reduce_lanes(largest.value(), kLanes, Largest()));
    if (!exists) return;
    if (lane_ == 0) shared_.scales[row] = scale * weight;
    // As quantize() does it, but for signs of zero and with one step for all: of what is activated
    // sums differ more. Powers of two change no quotient and keep steps in float32's range.
    float factor = 1, divisor = scale;
    if (!Float8Quantizer<true>::is_ordinary(scale)) {
      const bool is_number = scale < INFINITY;
      factor = !is_number ? 0.0f : scale < 1 ? 0x1p100f : 0x1p-100f;
      divisor = is_number ? scale * factor : 1.0f;
    }
    const float reciprocal = 1.0f / divisor;
    const auto quotient = [&](uint32_t bits) {
      return divide(__uint_as_float(bits) * factor, divisor, reciprocal);
    };
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const uint4& own = vectors[i];
      const uint32_t low = float8_pair(quotient(own.x), quotient(own.y));
      const uint32_t high = float8_pair(quotient(own.z), quotient(own.w));
      const int vector = column(i) / kVectorSize ^ row % kTileRows;
      uint8_t* const place = shared_.codes[row] + vector * kVectorSize + column(i) % kVectorSize;
      *reinterpret_cast<uint32_t*>(place) = low | high << 16;
    }
  }

  const MoeOneArgs& args_;
  Shared& shared_;
  const int lane_;  // of a row's
};

// By a warp, when the block has read what is activated.
__device__ inline void forget_activated(const MoeOneArgs& args, const Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  wait_for(shared_address(&shared.read), 0);
  int count = 0;
  if (lane == 0) {
    __threadfence();
    count = atomicAdd(own_counter(args), 1);
    __threadfence();
  }
  if (__shfl_sync(0xffffffffu, count, 0) != static_cast<int>(gridDim.x) - 1) return;
  const int num_words = shared.num_choices * args.call.intermediate_size;
#pragma unroll 4
  for (int i = lane * 4; i < num_words; i += kWarpSize * 4) {
    *reinterpret_cast<uint4*>(own_words(args) + i) = {};
  }
  if (lane == 0) *own_counter(args) = 0;
}

}  // namespace atom::ops::device::moe_one
