// Inside fused_moe by MXFP4 and FP8: the warpgroups that multiply, each 64 of a tile's rows. While
// the products of a chunk run, codes of the next one are expanded.
#pragma once

#include "ops/device/code_products.cuh"
#include "ops/device/matrix_loads.cuh"
#include "ops/fused_moe/moe_mixed_output.cuh"

namespace atom::ops::device::mixed {

template <bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeMixedArgs& args, const Shared<kGated>& shared)
      : args_(args), shared_(shared), output_(args, shared), tables_(shared.tables()) {
    const int lane = threadIdx.x % kWarpSize;
    // The rows and blocks whose addresses this lane gives, by the swizzle of 64 bytes.
    const LaneRows given = LaneRows::of<kGated>(lane % 8);
    const LaneRows own = LaneRows::of<kGated>(lane / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = given.row[i];
      codes_offsets_[i] = row * kRowSize + (lane / 8 ^ row / 2 % 4) * kVectorSize;
      places_offsets_[i] = own.row[i] * kPlacesRowSize;
    }
  }

  __device__ __forceinline__ void run(const Tile& tile) {
    const int group = threadIdx.x / kWarpgroupSize;
    // The compiler knows that a warp has one.
    const int rows =
        __shfl_sync(0xffffffffu, args_.num_rows - tile.first_matrix_row - group * kGroupRows, 0);
    wait_for(shared_.places_full(buffer_.index), buffer_.parity);
    if (rows > 0) {
      multiply_tile(tile);
    } else {
      skip();
    }
    release(shared_.places_empty(buffer_.index));
    buffer_.advance(kPlaceBuffers);
  }

 private:
  using Sums = float[kTokens / 2];
  using Codes = uint32_t[kChunkBlocks][4];  // of a chunk, expanded

  __device__ __forceinline__ void multiply_tile(const Tile& tile) {
    output_.begin(tile);
    Sums sums = {};
    // The compiler knows that a warp has one number of units.
    const int tokens = __shfl_sync(0xffffffffu, token_units(tile), 0) * kUnitTokens;
    if (tokens > 144) {
      add_chunks<kTokens>(sums);
    } else if (tokens > 128) {
      add_chunks<144>(sums);
    } else if (tokens > 80) {
      add_chunks<128>(sums);
    } else {
      add_chunks<80>(sums);
    }
    output_.store(tile, sums, shared_.units(buffer_.index));
  }

  template <int kCount>
  __device__ __forceinline__ void add_chunks(Sums& sums) {
    Codes codes[2];
    places_ = shared_.places(buffer_.index);
    load(codes[0]);
#pragma unroll 1
    for (int chunk = 1; chunk < args_.num_chunks; chunk += 2) {
      add_chunk<kCount, true>(codes[0], codes[1], sums);
      add_chunk<kCount, true>(codes[1], codes[0], sums);
    }
    if (args_.ends_with_half) {
      add_chunk<kCount, false, kChunkBlocks / 2>(codes[0], codes[1], sums);
    } else {
      add_chunk<kCount, false>(codes[0], codes[1], sums);
    }
  }

  // Of the current stage, expanded, when it is there.
  __device__ __forceinline__ void load(Codes& codes) {
    wait_for(shared_.full(stage_.index), stage_.parity);
    uint32_t words[2][kChunkBlocks], places[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_matrices(words[i], shared_.matrix(stage_.index) + codes_offsets_[i]);
      places[i] = load_shared_word(places_ + places_offsets_[i]);
    }
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // Tables begin at a multiple of 256 bytes.
        const uint2 table = load_shared_words(permute(places[i], tables_, 0x7650 + b));
        expand(words[i][b], table, codes[b][i], codes[b][2 + i]);
      }
    }
    places_ += kChunkBlocks;
  }

  // The products of a chunk's codes, whose stage is the current one.
  template <int kCount, bool kHasNext, int kBlocks = kChunkBlocks>
  __device__ __forceinline__ void add_chunk(const Codes& codes, Codes& next, Sums& sums) {
    float products[kCount / 2];
    const int stage = stage_.index;
    const uint64_t x = matrix_at(shared_.x(stage));
    begin_products();
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      multiply_codes<kCount>(products, codes[b], x + matrix_offset(b * kExponentColumns), b > 0);
    }
    commit_products();
    stage_.advance(Shared<kGated>::kStages);
    if constexpr (kHasNext) load(next);
    wait_for_products<0>();
    pin(products);
    const uint32_t scales = shared_.scales(stage) + threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      const uint2 bits = load_shared_words(scales + j * 32);
      const float of_token[2] = {__uint_as_float(bits.x), __uint_as_float(bits.y)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[4 * j + i] = fmaf(products[4 * j + i], of_token[i % 2], sums[4 * j + i]);
      }
    }
    release(shared_.empty(stage));
  }

  // A tile of whose rows of the matrix the warpgroup has none.
  __device__ void skip() {
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      release(shared_.empty(stage_.index));
      stage_.advance(Shared<kGated>::kStages);
    }
  }

  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  const MoeMixedArgs& args_;
  const Shared<kGated>& shared_;
  Output<kGated> output_;
  const uint32_t tables_;
  StageCursor stage_, buffer_;
  int codes_offsets_[2], places_offsets_[2];  // of this lane
  uint32_t places_;                           // of the chunk that is loaded next
};

}  // namespace atom::ops::device::mixed
