// Inside fused_moe by rows of matrices on Hopper: the kernel. Of a block's three warpgroups the
// first copies a tile's tokens and rows of a matrix to a ring of stages, by one thread; the others
// have half of the rows each, and expand some, where they are to be expanded, while the matrix
// units multiply others.
#pragma once

#include <type_traits>

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
        matrix_offsets_[b][i] = rows.row[b][i] * Chunk<W>::kRowSize + t * kVectorSize;
        exponent_offsets_[b][i] = rows.row[b][i] * args.row_exponents + t;
      }
    }
  }

  __device__ void run(const MoeTile& tile) {
    output_.begin(tile);
    float sums[kBlocks][kTokens / 2];
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

  // From registers, which a product has until it is done: one while the next one's are filled,
  // unless another block does something meanwhile.
  __device__ void add_expanded(float (&sums)[kBlocks][kTokens / 2]) {
    constexpr int kBuffers = kIsSmall<W, kTokens> ? 1 : kBlocks;
    uint32_t codes[kBuffers][kProducts][4];
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (chunk > 0 || (kBuffers == 1 && b > 0)) wait_for_products<kBuffers - 1>();
        if (chunk > 0 && b == kBuffers - 1) release(shared_.empty(previous));
        expand(b, chunk, codes[b % kBuffers]);
        begin_products();
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          multiply<kTokens>(sums[b], codes[b % kBuffers][p], x_of(p), chunk > 0 || p > 0);
        }
        commit_products();
      }
      previous = stage_.index;
      stage_.advance(args_.num_stages);
    }
    finish_products(sums, previous);
  }

  // From shared memory.
  __device__ void add_stored(float (&sums)[kBlocks][kTokens / 2]) {
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

  __device__ void finish_products(float (&sums)[kBlocks][kTokens / 2], int last_stage) const {
    wait_for_products<0>();
#pragma unroll
    for (float(&block)[kTokens / 2] : sums) pin(block);
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
  int matrix_offsets_[kBlocks][2], exponent_offsets_[kBlocks][2];  // of this lane's bytes
};

// By a warp, of which one lane copies.
template <typename W, int kTokens, bool kGated>
__device__ void copy_tiles(const MoeRowsArgs& args, const Shared<W, kTokens>& shared) {
  Copier<W, kTokens, kGated> copier(args, shared);
  const bool copies = is_elected();
  bool has_waited = kGated;
  for_tiles(
      args,
      [&](const MoeTile& tile) {
        if (!has_waited) {
          if (copies) copier.begin(tile);
          wait_for_previous_grid();
          has_waited = true;
        }
        if (copies) copier.run(tile);
      },
      kTokens);
  if (!has_waited) wait_for_previous_grid();
}

template <typename W, int kTokens, bool kGated>
__global__ void __launch_bounds__(kNumThreads, kIsSmall<W, kTokens> ? 2 : 1)
    moe_rows(const __grid_constant__ MoeRowsArgs args) {
  constexpr bool kMovesRegisters = !kIsSmall<W, kTokens> || Chunk<W>::kFromRegisters;
  // All together the warpgroups have 504 for each thread of one, or with two blocks 240.
  constexpr int kProducerRegisters = kIsSmall<W, kTokens> ? 32 : 40;
  constexpr int kConsumerRegisters = kIsSmall<W, kTokens> ? 104 : 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<W, kTokens> shared(args, memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  __syncthreads();
  // The order of choices is of the kernel before the first of the two, whose blocks have waited for
  // it before the second may start. That one's sums need what its copies wait for.
  if (kGated) wait_for_previous_grid();
  allow_next_grid();
  if (threadIdx.x >= kNumConsumers) {
    if constexpr (kMovesRegisters) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    }
    if (threadIdx.x / kWarpSize == kConsumerWarps) copy_tiles<W, kTokens, kGated>(args, shared);
  } else {
    if constexpr (kMovesRegisters) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    }
    Multiplier<W, kTokens, kGated> multiplier(args, shared);
    for_tiles(
        args, [&](const MoeTile& tile) { multiplier.run(tile); }, kTokens);
  }
}

}  // namespace atom::ops::device::rows
