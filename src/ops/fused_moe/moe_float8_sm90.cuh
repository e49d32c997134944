// Inside fused_moe for many tokens by experts in FP8 on Hopper: the kernel. Of a block's three
// warpgroups the first copies codes of rows of x and of a matrix to a ring of stages, by one
// thread; the others multiply the halves of a tile's rows. A stage is 128 of k, of which x and the
// matrix have a scale each: its products are added up apart, by halves of the tile's columns, and
// then join the sums with their scales. While one warpgroup does so the other one's products run.
#pragma once

#include "ops/fused_moe/moe_float8_output.cuh"

namespace atom::ops::device::moe8 {

template <bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeFloat8Args& args, const Shared<kGated>& shared)
      : args_(args),
        shared_(shared),
        output_(args, shared.rows(threadIdx.x / kWarpSize)),
        warp_(threadIdx.x / kWarpSize),
        x_offset_(warp_ / 4 * kWarpgroupRows * kPanelSize) {}

  __device__ void run(const MoeTile& tile) {
    const int first_row = tile.first_row + warp_ / 4 * kWarpgroupRows;
    if (first_row >= tile.end_row) return skip();
    Sums sums;
    multiply(tile, first_row + warp_ % 4 * 16, sums);
    output_.store(sums, tile, first_row + warp_ % 4 * 16);
  }

  __device__ void finish() { output_.finish(); }

 private:
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // Of a chunk: of this thread's two rows, and of the matrix's part of each half.
  struct Scales {
    float rows[2], halves[2];
  };

  struct ScalePlaces {
    const float* rows[2];
    const float* halves[2];
    RowScales kind;
    bool has_halves;  // scales of them

    __device__ Scales at(int chunk) const {
      Scales scales;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scales.rows[i] = gpu_load_from_l2(rows[i] + chunk);
        scales.halves[i] = 1.0f;
        if (has_halves) {
          scales.halves[i] = halves[i][kind == RowScales::kBlocks ? chunk : 0];
        }
      }
      return scales;
    }
  };

  // `row`: the warp's first.
  __device__ ScalePlaces places_of(const MoeTile& tile, int row) const {
    ScalePlaces places;
    places.kind = args_.scales;
    places.has_halves = places.kind != RowScales::kEach && args_.own.scales != nullptr;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = min(row + threadIdx.x % kWarpSize / 4 + 8 * i, tile.end_row - 1);
      places.rows[i] = args_.x_scales + int64_t{own} * args_.num_chunks;
      const int first = min(first_row_of<kGated>(args_, tile, i), args_.num_rows - 1);
      const int block = places.kind == RowScales::kBlocks ? first / kBlockRows : 0;
      places.halves[i] =
          args_.own.scales + tile.expert * args_.own.scale_stride + block * args_.own.scales_across;
    }
    return places;
  }

  __device__ void multiply(const MoeTile& tile, int row, Sums& sums) {
    const ScalePlaces places = places_of(tile, row);
    Scales next = places.at(0);
#pragma unroll
    for (float(&half)[kHalfSums] : sums) {
#pragma unroll
      for (float& sum : half) sum = 0;
    }
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const Scales scales = next;
      if (chunk + 1 < args_.num_chunks) next = places.at(chunk + 1);
      wait_for(shared_.full(stage_.index), stage_.parity);
      const uint64_t a = matrix_at(shared_.x(stage_.index) + x_offset_);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t b = matrix_at(shared_.matrix(stage_.index) + half * kHalfSize);
        float part[kHalfSums];
        begin_products();
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          const uint64_t offset = matrix_offset(i * kStepSize);
          multiply_by_128(part, a + offset, b + offset, i > 0);
        }
        commit_products();
        wait_for_products<0>();
        pin(part);
        if (half == 1) release(stage_.index);
        const float first = scales.rows[0] * scales.halves[half];
        const float second = scales.rows[1] * scales.halves[half];
#pragma unroll
        for (int i = 0; i < kHalfSums; i += 4) {
          sums[half][i] += first * part[i];
          sums[half][i + 1] += first * part[i + 1];
          sums[half][i + 2] += second * part[i + 2];
          sums[half][i + 3] += second * part[i + 3];
        }
      }
      stage_.advance(Shared<kGated>::kNumStages);
    }
  }

  // A tile none of whose rows here exist.
  __device__ void skip() {
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      release(stage_.index);
      stage_.advance(Shared<kGated>::kNumStages);
    }
  }

  __device__ void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(shared_.empty(stage));
  }

  const MoeFloat8Args& args_;
  const Shared<kGated>& shared_;
  Output<kGated> output_;
  const int warp_, x_offset_;
  StageCursor stage_;
};

template <bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_float8(const __grid_constant__ MoeFloat8Args args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kGated> shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    for (int i = 0; i < Shared<kGated>::kNumStages; ++i) {
      init_barrier(shared.full(i), 1);
      init_barrier(shared.empty(i), kConsumerWarps);
    }
    publish_barriers();
  }
  allow_next_grid();
  __syncthreads();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x / kWarpSize == kConsumerWarps) copy_tiles<kGated>(args, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated> multiplier(args, shared);
    for_tiles(args, [&](const MoeTile& tile) { multiplier.run(tile); });
    multiplier.finish();
  }
}

}  // namespace atom::ops::device::moe8
