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

// Of a stage's products of 64 rows, which follow each other.
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
    if constexpr (std::is_same_v<W, Float8>) {
      if (args_.in_blocks) {
        add_blocks(tile, sums[0]);
      } else {
        add_chunks(sums);
      }
    } else {
      add_chunks(sums);
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
  // Products that are under way while the next ones' rows are expanded.
  static constexpr int kBuffers = 2;
  using Codes = uint32_t[kProducts][4];

  __device__ void add_chunks(float (&sums)[kBlocks][kTokens / 2]) {
    Codes codes[kBuffers];
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; chunk += kBuffers / kBlocks) {
#pragma unroll
      for (int i = 0; i < kBuffers; ++i) {
        // Of one or of both blocks of a chunk.
        const int own = chunk + i / kBlocks, b = i % kBlocks;
        if (kBlocks == 1 && own >= args_.num_chunks) break;
        if (b == 0) wait_for(shared_.full(stage_.index), stage_.parity);
        multiply_chunk(own, b, own > 0 || b > 0, own > 0, codes[i], sums[b], previous);
        if (b + 1 < kBlocks) continue;
        previous = stage_.index;
        stage_.advance(args_.num_stages);
      }
    }
    wait_for_products<0>();
#pragma unroll
    for (float(&block)[kTokens / 2] : sums) pin(block);
    release(shared_.empty(previous));
  }

  // One after the other; `follows`: another product of this tile is before it.
  __device__ void multiply_chunk(int chunk,
                                 int b,
                                 bool follows,
                                 bool keeps,
                                 Codes& codes,
                                 float (&sums)[kTokens / 2],
                                 int previous) {
    if constexpr (Chunk<W>::kFromRegisters) {
      // The product before the last one had these registers.
      if (follows) wait_for_products<1>();
      if (kBlocks == 2 && b == 1 && keeps) release(shared_.empty(previous));
      expand(b, chunk, codes);
    }
    begin_products();
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      constexpr int kPerPanel = kProducts / kPanels<W>;
      const uint64_t x = matrix_at(shared_.x(stage_.index, p / kPerPanel)) +
                         matrix_offset(p % kPerPanel * (kPanelSize / kPerPanel));
      if constexpr (Chunk<W>::kFromRegisters) {
        multiply<kTokens>(sums, codes[p], x, keeps || p > 0);
      } else {
        const uint64_t matrix = matrix_at(shared_.matrix(stage_.index) +
                                          threadIdx.x / kWarpgroupSize * kMatrixSize<W> / 2) +
                                matrix_offset(p * (Chunk<W>::kRowSize / kProducts));
        multiply<kTokens>(sums, matrix, x, keeps || p > 0);
      }
    }
    commit_products();
    if (kBlocks == 1 && keeps) {
      wait_for_products<1>();
      release(shared_.empty(previous));
    }
  }

  // Sums of two chunks, which share scales, one after the other in places that take turns.
  __device__ void add_blocks(const MoeTile& tile, float (&sums)[kTokens / 2]) {
    float parts[2][kTokens / 2];
    Codes codes[kBuffers];
#pragma unroll
    for (float& sum : sums) sum = 0;
    int previous = 0;
    const int num_blocks = (args_.num_chunks + 1) / 2;
    const float* scales[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int half = kGated ? i : threadIdx.x / kWarpgroupSize;
      const int row =
          min(first_row_of<W, kGated>(args_, tile.column_tile, half), args_.num_rows - 1);
      scales[i] = args_.own.scales + tile.expert * args_.own.scale_stride +
                  row / kScaleBlock * args_.own.scales_across;
    }
    float before[2] = {};  // scales of the block before
    for (int first = 0; first < num_blocks; first += 2) {
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int block = first + turn;
        if (block >= num_blocks) break;
        const float own[2] = {scales[0][block], scales[1][block]};
#pragma unroll
        for (int i = 0; i < kBuffers; ++i) {
          const int chunk = 2 * block + i;
          if (chunk >= args_.num_chunks) break;
          wait_for(shared_.full(stage_.index), stage_.parity);
          expand(0, chunk, codes[i]);
          begin_products();
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            const uint64_t x = matrix_at(shared_.x(stage_.index, 0)) +
                               matrix_offset(p * (kPanelSize / kProducts));
            multiply<kTokens>(parts[turn], codes[i][p], x, i > 0 || p > 0);
          }
          commit_products();
          if (chunk > 0) {
            wait_for_products<1>();
            release(shared_.empty(previous));
            if (i == 0) add_scaled(parts[1 - turn], before, sums);
          }
          previous = stage_.index;
          stage_.advance(args_.num_stages);
        }
        before[0] = own[0];
        before[1] = own[1];
      }
    }
    wait_for_products<0>();
    release(shared_.empty(previous));
    if (num_blocks % 2 == 1) {
      add_scaled(parts[0], before, sums);
    } else {
      add_scaled(parts[1], before, sums);
    }
  }

  static __device__ void add_scaled(float (&part)[kTokens / 2],
                                    const float (&scales)[2],
                                    float (&sums)[kTokens / 2]) {
    pin(part);
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] += scales[i / 2 % 2] * part[i];
  }

  // Of a product: [16 columns][as the product takes them].
  __device__ void expand(int b, int chunk, Codes& codes) const {
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
      // 16 bytes are pairs for four or eight products.
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

template <typename W, int kTokens, bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_rows(const __grid_constant__ MoeRowsArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<W, kTokens> shared(args, memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  allow_next_grid();
  __syncthreads();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x / kWarpSize == kConsumerWarps) {
      Copier<W, kTokens, kGated> copier(args, shared);
      const bool copies = is_elected();
      for_tiles(
          args,
          [&](const MoeTile& tile) {
            if (copies) copier.run(tile);
          },
          kTokens);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<W, kTokens, kGated> multiplier(args, shared);
    for_tiles(args, [&](const MoeTile& tile) { multiplier.run(tile); }, kTokens);
  }
}

}  // namespace atom::ops::device::rows
