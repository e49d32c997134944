// Inside fused_moe for many tokens by experts in MXFP4 on Hopper: the kernel. Of a block's three
// warpgroups the first copies a tile's rows of x and of a matrix to a ring of stages, by one
// thread; the others have 128 rows of the matrix each, in two products of 64, and expand one while
// the matrix units multiply the other.
#pragma once

#include "ops/fused_moe/moe_float4_output.cuh"
#include "ops/fused_moe/moe_float4_product.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::moe4 {

template <int kTokens, bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeFloat4Args& args, const Shared<kTokens>& shared)
      : args_(args), shared_(shared), output_(args, shared.output(threadIdx.x / kWarpSize)) {
    const LaneRows rows = LaneRows::of<kGated>(args.call.activation.is_interleaved);
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        matrix_offsets_[b][i] = rows.row[b][i] * kMatrixRowSize + t * kVectorSize;
        exponent_offsets_[b][i] = rows.row[b][i] * args.row_exponents + t;
      }
    }
  }

  __device__ void run(const MoeTile& tile) {
    output_.begin(tile);
    float sums[2][kTokens / 2];
    uint32_t codes[2][kProducts][4];
    wait_for(shared_.exponents_full(buffer_.index), buffer_.parity);
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        // The product before the last one had these registers.
        if (chunk > 0) {
          wait_for_products<1>();
          if (b == 1) release(shared_.empty(previous));
        }
        expand(b, chunk, codes[b]);
        multiply_chunk(codes[b], chunk > 0, sums[b]);
      }
      previous = stage_.index;
      stage_.advance(args_.num_stages);
    }
    release(shared_.exponents_empty(buffer_.index));
    buffer_.advance(kExponentBuffers);
    wait_for_products<0>();
    pin(sums[0]);
    pin(sums[1]);
    release(shared_.empty(previous));
    output_.store(sums);
  }

 private:
  static constexpr int kProducts = kMoeChunkColumns / 16;
  using Format = RowFormat<Float4>;

  // Of a product: [16 columns][as the product takes them].
  __device__ void expand(int b, int chunk, uint32_t (&codes)[kProducts][4]) const {
    const uint32_t matrix = shared_.matrix(stage_.index);
    const uint32_t exponents =
        shared_.exponents(buffer_.index) + chunk * (kMoeChunkColumns / kExponentColumns);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 bits = load_shared(matrix + matrix_offsets_[b][i]);
      const uint32_t factors =
          Format::factors(load_shared_byte(exponents + exponent_offsets_[b][i]));
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        uint32_t pairs[4];
        Format::expand(bits, word, factors, pairs);
#pragma unroll
        for (int p = 0; p < 4; ++p) codes[2 * word + p / 2][p % 2 * 2 + i] = pairs[p];
      }
    }
  }

  __device__ void multiply_chunk(const uint32_t (&codes)[kProducts][4],
                                 bool keeps,
                                 float (&sums)[kTokens / 2]) const {
    begin_products();
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      constexpr int kPerPanel = kProducts / kPanels;
      const uint64_t x = matrix_at(shared_.x(stage_.index, p / kPerPanel)) +
                         matrix_offset(p % kPerPanel * (kPanelSize / kPerPanel));
      multiply<kTokens>(sums, codes[p], x, keeps || p > 0);
    }
    commit_products();
  }

  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  const MoeFloat4Args& args_;
  const Shared<kTokens>& shared_;
  Output<kTokens, kGated> output_;
  StageCursor stage_, buffer_;
  int matrix_offsets_[2][2], exponent_offsets_[2][2];  // of this lane's bytes
};

template <int kTokens, bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_float4(const __grid_constant__ MoeFloat4Args args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kTokens> shared(args, memory);
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
    if (threadIdx.x / kWarpSize == kConsumerWarps && is_elected()) {
      copy_tiles<kTokens, kGated>(args, shared);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kTokens, kGated> multiplier(args, shared);
    for_tiles(
        args, [&](const MoeTile& tile) { multiplier.run(tile); }, kTokens);
  }
}

}  // namespace atom::ops::device::moe4
