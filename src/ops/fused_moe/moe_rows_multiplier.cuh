// Inside fused_moe by rows of matrices on Hopper: the warpgroups that multiply. Each has some of
// the rows, or of the chunks, and expands some, where they are to be expanded, while the matrix
// units multiply others.
#pragma once

#include "ops/fused_moe/moe_rows_output.cuh"
#include "ops/fused_moe/moe_rows_product.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::rows {

template <typename W, int kTokens, bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeRowsArgs& args, const Shared<W, kTokens>& shared)
      : args_(args), shared_(shared), output_(args, shared.output(threadIdx.x / kWarpSize)) {
    const auto rows = LaneRows<W, kGated>::of(args.call.activation.is_interleaved);
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = rows.row[b][i];
        // The lane has one of the chunk's blocks.
        matrix_offsets_[b][i] = Chunk<W>::kImages
                                    ? row / kImageRows * kRunSize<W> +
                                          t / kImageBlocks * kImageSize + image_offset(row, t)
                                    : row * Chunk<W>::kRowSize + t * kVectorSize;
        exponent_offsets_[b][i] = row * args.row_exponents + t;
      }
    }
  }

  __device__ __forceinline__ void run(const MoeTile& tile) {
    output_.begin(tile);
    Sums sums;
    if constexpr (kHasExponents) wait_for(shared_.exponents_full(buffer_.index), buffer_.parity);
    if constexpr (Chunk<W>::kFromRegisters) {
      add_expanded(sums);
    } else {
      add_stored(sums);
    }
    if constexpr (kHasExponents) {
      release(shared_.exponents_empty(buffer_.index));
      buffer_.advance(kExponentBuffers);
    }
    output_.store(sums);
  }

 private:
  using Format = RowFormat<W>;
  static constexpr int kBlocks = Chunk<W>::kBlocks;
  static constexpr int kProducts = Chunk<W>::kColumns / 16;
  static constexpr bool kHasExponents = Format::kHasExponents;

  // Of a warpgroup.
  using Sums = float[kBlocks][kTokens / 2];

  // From registers, which a product has until it is done.
  __device__ __forceinline__ void add_expanded(Sums& sums) {
    if constexpr (kBlocks == 1) return add_halves(sums);
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
        expand<kProducts>(b, chunk, 0, codes[b]);
        multiply_codes<kProducts>(sums[b], codes[b], 0, chunk > 0);
      }
      previous = stage_.index;
      stage_.advance(args_.num_stages);
    }
    finish_products(sums, previous);
  }

  // By halves of a chunk, so that one is expanded while the products of the other run.
  __device__ __forceinline__ void add_halves(Sums& sums) {
    constexpr int kHalf = kProducts / 2;
    uint32_t codes[2][kHalf][4];
    wait_for(shared_.full(stage_.index), stage_.parity);
    expand<kHalf>(0, 0, 0, codes[0]);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      multiply_codes<kHalf>(sums[0], codes[0], 0, chunk > 0);
      expand<kHalf>(0, chunk, kHalf, codes[1]);
      multiply_codes<kHalf>(sums[0], codes[1], kHalf, true);
      const int done = stage_.index;
      stage_.advance(args_.num_stages);
      const bool is_last = chunk + 1 == args_.num_chunks;
      if (!is_last) wait_for(shared_.full(stage_.index), stage_.parity);
      wait_for_products<1>();
      if (!is_last) expand<kHalf>(0, chunk + 1, 0, codes[0]);
      wait_for_products<0>();
      pin(sums[0]);
      release(shared_.empty(done));
    }
  }

  // Begins products from the first on.
  template <int kParts>
  __device__ __forceinline__ void multiply_codes(float (&sums)[kTokens / 2],
                                                 const uint32_t (&codes)[kParts][4],
                                                 int first,
                                                 bool keeps) const {
    begin_products();
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      multiply<kTokens>(sums, codes[p], x_of(first + p), keeps || p > 0);
    }
    commit_products();
  }

  // From shared memory.
  __device__ __forceinline__ void add_stored(Sums& sums) {
    static_assert(kBlocks == 1);
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      const uint64_t matrix = matrix_at(shared_.matrix(stage_.index) +
                                        threadIdx.x / kWarpgroupSize * kMatrixSize<W> / 2);
      begin_products();
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        multiply<kTokens>(sums[0],
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
    finish_products(sums, previous);
  }

  __device__ uint64_t x_of(int product) const {
    constexpr int kPerPanel = kProducts / kPanels<W>;
    return matrix_at(shared_.x(stage_.index, product / kPerPanel)) +
           matrix_offset(product % kPerPanel * (kPanelSize / kPerPanel));
  }

  __device__ __forceinline__ void finish_products(Sums& sums, int last_stage) const {
    wait_for_products<0>();
#pragma unroll
    for (float(&block)[kTokens / 2] : sums) pin(block);
    release(shared_.empty(last_stage));
  }

  // Of kCount products from the first on: [16 columns][as the product takes them].
  template <int kCount>
  __device__ void expand(int b, int chunk, int first, uint32_t (&codes)[kCount][4]) const {
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
      for (int v = 0; v < kCount / 2; ++v) {
        uint32_t pairs[4];
        Format::expand(bits, first / 2 + v, factors, pairs);
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
  int matrix_offsets_[kBlocks][2], exponent_offsets_[kBlocks][2];  // of this lane's bytes
};

}  // namespace atom::ops::device::rows
