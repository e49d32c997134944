// Inside fused_moe by rows of matrices on Hopper: the warpgroups that multiply. Each has some of
// the rows, or of the chunks, and expands some, where they are to be expanded, while the matrix
// units multiply others.
#pragma once

#include "ops/fused_moe/moe_rows_output.cuh"
#include "ops/fused_moe/moe_rows_product.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::rows {

__device__ inline void store_shared_float(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ inline float load_shared_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// What the compiler would otherwise compute again at each use.
__device__ inline void keep_in_register(int& value) {
  asm volatile("" : "+r"(value));
}

// Four matrices of eight rows of 16 bytes to the registers of a warp, lane i with the address of
// row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t address, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

template <typename W, int kTokens, bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeRowsArgs& args, const Shared<W, kTokens>& shared)
      : args_(args), shared_(shared), output_(args, shared.output(threadIdx.x / kWarpSize)) {
    const auto rows = LaneRows<W, kGated>::of(args.call.activation.is_interleaved);
    const int t = threadIdx.x % 4;
    if (!is_first()) stage_.advance(args.num_stages);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        matrix_offsets_[b][i] = rows.row[b][i] * Chunk<W>::kRowSize + t * kVectorSize;
        exponent_offsets_[b][i] = rows.row[b][i] * args.row_exponents + t;
        if constexpr (kSplits) {
          keep_in_register(matrix_offsets_[b][i]);
          if constexpr (kTokens <= 8) keep_in_register(exponent_offsets_[b][i]);
        }
      }
    }
    if constexpr (kSplits) {
      const int lane = threadIdx.x % kWarpSize;
      x_offset_ = place_in_panel(lane % 8, lane / 8);
      keep_in_register(x_offset_);
    }
  }

  __device__ __forceinline__ void run(const MoeTile& tile) {
    if (is_first()) output_.begin(tile);
    constexpr int kUnit = kTokenUnit<W, kTokens>;
    // The compiler knows that a warp has one number of units.
    const int units =
        kUnit == kTokens ? 1 : __shfl_sync(0xffffffffu, token_units<W, kTokens>(tile), 0);
    static_assert(kUnit == kTokens || 2 * kUnit == kTokens);
    if (units == 1) return run_with<kUnit>();
    run_with<kTokens>();
  }

 private:
  using Format = RowFormat<W>;
  static constexpr int kBlocks = Chunk<W>::kBlocks;
  static constexpr int kProducts = Chunk<W>::kColumns / 16;
  static constexpr bool kHasExponents = Format::kHasExponents;
  static constexpr bool kSplits = Chunk<W>::kSplits;

  // Of a warpgroup, or what one of two that share rows has of them, by the tile's first kCount
  // tokens.
  template <int kCount>
  using Sums = float[kBlocks][kCount / 2];

  template <int kCount>
  __device__ __forceinline__ void run_with() {
    Sums<kCount> sums;
    if constexpr (kHasExponents) wait_for(shared_.exponents_full(buffer_.index), buffer_.parity);
    if constexpr (kSplits) {
      add_own<kCount>(sums);
    } else if constexpr (Chunk<W>::kFromRegisters) {
      add_expanded<kCount>(sums);
    } else {
      add_stored<kCount>(sums);
    }
    if constexpr (kHasExponents) {
      release(shared_.exponents_empty(buffer_.index));
      buffer_.advance(kExponentBuffers);
    }
    if constexpr (kSplits) join<kCount>(sums);
    if (is_first()) output_.template store<kCount>(sums);
  }

  // Of the warpgroups that share rows the one that has their results.
  static __device__ bool is_first() {
    return !kSplits || threadIdx.x < kWarpgroupSize;
  }

  // Of the chunks that are this warpgroup's, every other one of an even number. Each warp
  // multiplies by itself, so that it expands a word of codes while the products of the one before
  // run.
  template <int kCount>
  __device__ __forceinline__ void add_own(Sums<kCount>& sums) {
    constexpr int kEights = kCount / 8;
    // Products wait for those before them that are added to the same sums: where registers allow,
    // every other one has sums of its own.
    constexpr int kChains = kTokens <= 8 ? 2 : 1;
    float tiles[kBlocks][kEights][kChains][4] = {};
    for (int chunk = 0; chunk < args_.num_chunks; chunk += 2) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      uint4 bits[kBlocks][2];
      uint32_t factors[kBlocks][2];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_codes(b, i, chunk, bits[b][i], factors[b][i]);
      }
#pragma unroll
      for (int v = 0; v < Format::kXVectors; ++v) {
        uint32_t x[kEights][4];
#pragma unroll
        for (int n = 0; n < kEights; ++n) load_matrices(x_of_lane(v, n), x[n]);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          uint32_t codes[2][4];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint32_t pairs[4];
            Format::expand(bits[b][i], v, factors[b][i], pairs);
#pragma unroll
            for (int p = 0; p < 4; ++p) codes[p / 2][p % 2 * 2 + i] = pairs[p];
          }
#pragma unroll
          for (int n = 0; n < kEights; ++n) {
            multiply_tile(tiles[b][n][0], codes[0], x[n][0], x[n][1]);
            multiply_tile(tiles[b][n][kChains - 1], codes[1], x[n][2], x[n][3]);
          }
        }
      }
      release(shared_.empty(stage_.index));
      stage_.advance(args_.num_stages);
      stage_.advance(args_.num_stages);
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        sums[b][i] = tiles[b][i / 4][0][i % 4];
        if constexpr (kChains == 2) sums[b][i] += tiles[b][i / 4][1][i % 4];
      }
    }
  }

  // Of a row of this lane's, with the factors of its codes. Where a warpgroup has every other chunk
  // `chunk` is the first one's.
  __device__ void load_codes(int b, int i, int chunk, uint4& bits, uint32_t& factors) const {
    const int own_chunk = chunk + (is_first() ? 0 : 1);
    bits = load_shared(shared_.matrix(stage_.index) + matrix_offsets_[b][i]);
    factors = Format::factors(
        load_shared_byte(shared_.exponents(buffer_.index) + exponent_offsets_[b][i] +
                         own_chunk * (Chunk<W>::kColumns / kExponentColumns)));
  }

  // Where this lane's row is of the eight tokens' four times 16 bytes that meet a word of codes.
  __device__ uint32_t x_of_lane(int word, int eight) const {
    return shared_.x(stage_.index, word / 2) + place_in_panel(eight * 8, 0) +
           (x_offset_ ^ word % 2 * place_in_panel(0, 4));
  }

  // Adds the other warpgroup's sums to the first one's. The other one writes what follows to the
  // other buffer, and after that the first one has come to the barrier again, and so has read.
  template <int kCount>
  __device__ __forceinline__ void join(Sums<kCount>& sums) {
    const uint32_t memory =
        shared_.split_sums(join_buffer_) + threadIdx.x % kWarpgroupSize * sizeof(float);
    join_buffer_ ^= 1;
    const auto place = [&](int b, int i) {
      return memory + (b * (kCount / 2) + i) * kWarpgroupSize * static_cast<int>(sizeof(float));
    };
    if (!is_first()) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) store_shared_float(place(b, i), sums[b][i]);
      }
    }
    synchronize_first<kNumConsumers<W>>();
    if (!is_first()) return;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) sums[b][i] += load_shared_float(place(b, i));
    }
  }

  // From registers, which a product has until it is done.
  template <int kCount>
  __device__ __forceinline__ void add_expanded(Sums<kCount>& sums) {
    uint32_t codes[kBlocks][kProducts][4];
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (chunk > 0) {
          wait_for_products<kBlocks - 1>();
          if (b == kBlocks - 1) release(shared_.empty(previous));
        }
        expand(b, chunk, codes[b]);
        begin_products();
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          multiply<kCount>(sums[b], codes[b][p], x_of(p), chunk > 0 || p > 0);
        }
        commit_products();
      }
      previous = stage_.index;
      stage_.advance(args_.num_stages);
    }
    finish_products<kCount>(sums, previous);
  }

  // From shared memory.
  template <int kCount>
  __device__ __forceinline__ void add_stored(Sums<kCount>& sums) {
    static_assert(kBlocks == 1);
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      const uint64_t matrix = matrix_at(shared_.matrix(stage_.index) +
                                        threadIdx.x / kWarpgroupSize * kMatrixSize<W> / 2);
      begin_products();
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        multiply<kCount>(sums[0],
                         matrix + matrix_offset(p * (Chunk<W>::kRowSize / kProducts)),
                         x_of(p),
                         chunk > 0 || p > 0);
      }
      commit_products();
      if (chunk > 0) {
        wait_for_products<1>();
        release(shared_.empty(previous));
      }
      previous = stage_.index;
      stage_.advance(args_.num_stages);
    }
    finish_products<kCount>(sums, previous);
  }

  __device__ uint64_t x_of(int product) const {
    constexpr int kPerPanel = kProducts / kPanels<W>;
    return matrix_at(shared_.x(stage_.index, product / kPerPanel)) +
           matrix_offset(product % kPerPanel * (kPanelSize / kPerPanel));
  }

  template <int kCount>
  __device__ __forceinline__ void finish_products(Sums<kCount>& sums, int last_stage) const {
    wait_for_products<0>();
#pragma unroll
    for (float(&block)[kCount / 2] : sums) pin(block);
    release(shared_.empty(last_stage));
  }

  // Of a product: [16 columns][as the product takes them].
  __device__ void expand(int b, int chunk, uint32_t (&codes)[kProducts][4]) const {
    const uint32_t matrix = shared_.matrix(stage_.index);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 bits = load_shared(matrix + matrix_offsets_[b][i]);
      uint32_t factors = 0;
      if constexpr (kHasExponents) {
        const uint32_t exponents =
            shared_.exponents(buffer_.index) + chunk * (Chunk<W>::kColumns / kExponentColumns);
        factors = Format::factors(load_shared_byte(exponents + exponent_offsets_[b][i]));
      }
#pragma unroll
      for (int v = 0; v < Format::kXVectors; ++v) {
        uint32_t pairs[4];
        Format::expand(bits, v, factors, pairs);
#pragma unroll
        for (int p = 0; p < 4; ++p) codes[2 * v + p / 2][p % 2 * 2 + i] = pairs[p];
      }
    }
  }

  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  const MoeRowsArgs& args_;
  const Shared<W, kTokens>& shared_;
  Output<W, kTokens, kGated> output_;
  StageCursor stage_, buffer_;
  int join_buffer_ = 0;
  int x_offset_ = 0;
  int matrix_offsets_[kBlocks][2], exponent_offsets_[kBlocks][2];  // of this lane's bytes
};

}  // namespace atom::ops::device::rows
