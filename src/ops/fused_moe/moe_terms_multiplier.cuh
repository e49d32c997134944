// Inside fused_moe by terms in FP8: the warpgroups that multiply. Each has some of a tile's rows. A
// product is of one block of 32 columns, so that a row's part of it has one exponent; low terms
// come first, because the matrix units cut off what is 2^-13 of the largest addend.
#pragma once

#include "ops/device/matrix_loads.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"
#include "ops/fused_moe/moe_terms_numbers.cuh"
#include "ops/fused_moe/moe_terms_output.cuh"
#include "ops/fused_moe/moe_terms_product.cuh"

namespace atom::ops::device::terms {

__device__ inline float2 load_shared_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

template <int kTokens, bool kGated, bool kImages>
class Multiplier {
 public:
  __device__ Multiplier(const MoeTermsArgs& args, const Shared<kTokens, kGated>& shared)
      : args_(args), shared_(shared), output_(args, shared) {
    const bool is_interleaved = args.call.activation.is_interleaved;
    const int lane = threadIdx.x % kWarpSize;
    // The rows and blocks whose addresses this lane gives.
    const int matrix = lane / 8;
    const int row = LaneRows::of<kGated, kImages>(is_interleaved, lane % 8).row[matrix % 2];
    codes_offset_ = kImages ? row / kHalfRows * kRunSize + image_offset(row, matrix / 2)
                            : row * kRowSize + (matrix / 2 ^ row % 8) * kVectorSize;
    const LaneRows own = LaneRows::of<kGated, kImages>(is_interleaved, lane / 4);
    for (int i = 0; i < 2; ++i) exponent_offsets_[i] = own.row[i] * args.row_exponents;
  }

  __device__ __forceinline__ void run(const MoeTile& tile) {
    output_.begin(tile);
    // The compiler knows that a warp has one number of units.
    if constexpr (kTokens == kUnit8) return run_with<kUnit8>();
    if (__shfl_sync(0xffffffffu, token_units(tile), 0) == 1) return run_with<kUnit8>();
    run_with<kTokens>();
  }

 private:
  template <int kCount>
  using Products = float[kStepBlocks][kCount / 2];
  using Codes = uint32_t[kStepBlocks][4];

  template <int kCount>
  __device__ __forceinline__ void run_with() {
    float sums[kCount / 2] = {};
    Codes codes[2];
    wait_for(shared_.exponents_full(buffer_.index), buffer_.parity);
    begin_stage(shared_.exponents(buffer_.index));
    load(codes[0], 0);
    for (int chunk = 1; chunk < args_.num_chunks; ++chunk) {
      const uint32_t done = shared_.empty(stage_.index);
      add_chunk<kChunkSteps, kCount>(codes, sums, [&] {
        stage_.advance(args_.num_stages);
        begin_stage(exponents_ + kChunkBlocks);
        load(codes[0], 0);
      });
      release(done);
    }
    add_last_chunk<kCount>(codes, sums);
    release(shared_.empty(stage_.index));
    stage_.advance(args_.num_stages);
    release(shared_.exponents_empty(buffer_.index));
    buffer_.advance(kExponentBuffers);
    output_.template store<kCount>(sums);
  }

  // An even number of steps, or of images any.
  template <int kCount>
  __device__ __forceinline__ void add_last_chunk(Codes (&codes)[2], float (&sums)[kCount / 2]) {
    static_assert(kChunkSteps == 4);
    const auto load_nothing = [] {};
    const int steps = args_.last_steps;
    if (steps == 4) return add_chunk<4, kCount>(codes, sums, load_nothing);
    if (kImages && steps == 3) return add_chunk<3, kCount>(codes, sums, load_nothing);
    if (kImages && steps == 1) return add_chunk<1, kCount>(codes, sums, load_nothing);
    add_chunk<2, kCount>(codes, sums, load_nothing);
  }

  // `exponents`: of the chunk's first block.
  __device__ __forceinline__ void begin_stage(uint32_t exponents) {
    wait_for(shared_.full(stage_.index), stage_.parity);
    codes_ = shared_.matrix(stage_.index) + codes_offset_;
    if constexpr (!kGated) {
      x_scales_ = shared_.x_scales(stage_.index) + token_at(0) * kScalesRowSize;
    }
    exponents_ = exponents;
  }

  // Some of a chunk's steps, of whose first one there are codes: while the products of one run,
  // codes of the next one are expanded and those of the one before join the sums.
  template <int kSteps, int kCount, typename LoadNext>
  __device__ __forceinline__ void add_chunk(Codes (&codes)[2],
                                            float (&sums)[kCount / 2],
                                            LoadNext&& load_next) {
    Products<kCount> products[2];
    Factors<kCount> factors;
    // Eight tokens' terms are followed by their other ones.
    constexpr uint64_t kToNextEight = uint64_t{(kUnitSize - 1024) >> 4} << 32;
    const uint64_t x = matrix_at(shared_.x(stage_.index, 0)) + kToNextEight;
    begin<kCount>(products[0], codes[0], x, 0);
#pragma unroll
    for (int step = 1; step < kSteps; ++step) {
      load(codes[step % 2], step * kStepBlocks);
      begin<kCount>(products[step % 2], codes[step % 2], x, step * kStepBlocks);
      load_factors<kCount>(factors, (step - 1) * kStepBlocks);
      finish<1, kCount>(products[(step - 1) % 2], factors, sums);
    }
    load_factors<kCount>(factors, (kSteps - 1) * kStepBlocks);
    load_next();
    finish<0, kCount>(products[(kSteps - 1) % 2], factors, sums);
  }

  // Of the step from a block on, expanded.
  __device__ __forceinline__ void load(Codes& codes, int block) const {
    static_assert(kStepBlocks % 2 == 0);
#pragma unroll
    for (int b = 0; b < kStepBlocks; b += 2) {
      uint32_t words[4];
      load_matrices(words, codes_at(block + b));
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t(&target)[4] = codes[b + w / 2];
        uint32_t &even = target[w % 2], &odd = target[2 + w % 2];
        if constexpr (kImages) {
          expand_image(words[w], even, odd);
        } else {
          expand(words[w], even, odd);
        }
      }
    }
  }

  // Of a block of a chunk and the one behind it.
  __device__ __forceinline__ uint32_t codes_at(int block) const {
    if constexpr (!kImages) return codes_ ^ block * kVectorSize;
    const int image = block / kImageBlocks;
    constexpr int kToOdd = image_offset(0, 0) ^ image_offset(0, kImageBlocks);
    return (codes_ ^ image % 2 * kToOdd) + image * kImageSize;
  }

  template <int kCount>
  __device__ __forceinline__ void begin(Products<kCount>& products,
                                        const Codes& codes,
                                        uint64_t x,
                                        int block) const {
    begin_products();
#pragma unroll
    for (int b = 0; b < kStepBlocks; ++b) {
      multiply<kCount>(products[b], codes[b], x + x_offset(block + b, 1), false);
      multiply<kCount>(products[b], codes[b], x + x_offset(block + b, 0), true);
    }
    commit_products();
  }

  // Of a block of a term, from the first one's high terms on.
  static __device__ constexpr uint64_t x_offset(int block, int term) {
    constexpr int kPanelBlocks = kPanelColumns / kExponentColumns;
    return matrix_offset(block / kPanelBlocks * (kTokens / kUnit8) * kUnitSize + term * kTermSize +
                         block % kPanelBlocks * kExponentColumns);
  }

  // What a step's products are to be multiplied by: exponents of this lane's rows, and scales of
  // its tokens.
  template <int kCount>
  struct Factors {
    uint32_t exponents[2][kStepBlocks];
    float2 scales[kGated ? 1 : kCount / 4][kStepBlocks / 2];
  };

  template <int kCount>
  __device__ __forceinline__ void load_factors(Factors<kCount>& factors, int block) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        factors.exponents[i][b] = load_shared_byte(exponents_ + exponent_offsets_[i] + block + b);
      }
    }
    if constexpr (!kGated) {
#pragma unroll
      for (int n = 0; n < kCount / 4; ++n) {
        const uint32_t of_token = x_scales_ + (n / 2 * 8 + n % 2) * kScalesRowSize;
#pragma unroll
        for (int b = 0; b < kStepBlocks; b += 2) {
          factors.scales[n][b / 2] = load_shared_pair(of_token + (block + b) * 4);
        }
      }
    }
  }

  // When no more than kPending later steps are under way.
  template <int kPending, int kCount>
  static __device__ __forceinline__ void finish(Products<kCount>& products,
                                                const Factors<kCount>& factors,
                                                float (&sums)[kCount / 2]) {
    wait_for_products<kPending>();
#pragma unroll
    for (auto& some : products) pin(some);
#pragma unroll
    for (int b = 0; b < kStepBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float power = power_of(factors.exponents[i][b]);
#pragma unroll
        for (int n = 0; n < kCount / 4; ++n) {
          const int at = n / 2 * 4 + i * 2 + n % 2;
          float factor = power;
          if constexpr (!kGated) {
            const float2 pair = factors.scales[n][b / 2];
            factor *= b % 2 == 0 ? pair.x : pair.y;
          }
          sums[at] += products[b][at] * factor;
        }
      }
    }
  }

  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  const MoeTermsArgs& args_;
  const Shared<kTokens, kGated>& shared_;
  Output<kTokens, kGated, kImages> output_;
  StageCursor stage_, buffer_;
  uint32_t codes_offset_;
  int exponent_offsets_[2];
  // Of a stage, for this lane.
  uint32_t codes_, x_scales_, exponents_;
};

}  // namespace atom::ops::device::terms
