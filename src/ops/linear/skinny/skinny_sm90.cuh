// Inside the linear for few rows on Hopper: the kernel. A block owns tiles of weight rows, or two
// blocks of a cluster own them and divide k. In a block one thread starts the copies of the weight
// and of x into a ring of stages in shared memory, and two warpgroups multiply: each half of a
// tile's rows, or of tiles that one instruction takes as a whole each every other stage. At the end
// of a tile the sums pass through shared memory, those for rows of x that the other block of the
// cluster owns through that block's, and are added in the order of k.
//
// The ring is filled with weights before the kernel before has ended. What is not covered by it is
// the time from a block's last copy to the first one of the next kernel's block there: hence the
// short way from the last product to the outputs.
#pragma once

#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/skinny/finish.cuh"
#include "ops/linear/skinny/group_sums.cuh"

namespace atom::ops::device {

// kTakesTurns: a warpgroup multiplies whole tiles, but only every other stage.
template <typename T, int kColumns, bool kTakesTurns>
__device__ void consume(const SkinnyArgs& args, const SkinnyWork& work, const Shared& shared) {
  const int lane = threadIdx.x % kWarpSize, warpgroup = threadIdx.x / kWarpgroupSize;
  Sums<T, kColumns> sums(args, work, shared, kTakesTurns ? 0 : warpgroup);
  const Sender<kTakesTurns> sender(args, work, shared);
  const Units units(args, shared);
  Scales scales;
  StageCursor stage;
  const auto release = [&](int index) {
    if (lane == 0) arrive(shared.empty(index));
  };
  if (work.num_splits > 1) wait_for_cluster();
  for (int i = 0; i < work.num_tiles; ++i) {
    const int tile = work.first_tile + i * work.tile_step;
    float* const row_scales = shared.row_scales(i & 1);
    scales.load_rows(args, tile);
    const bool has_first = !kTakesTurns || stage.index % kWarpgroups == warpgroup;
    sums.begin(tile, work.first_chunk + (has_first ? 0 : 1));
    if (i == 0) {
      wait_for_previous_grid();
      scales.load_x(args);
      sums.share_scales();
    }
    for (int chunk = work.first_chunk; chunk < work.end_chunk; ++chunk) {
      if (!kTakesTurns || stage.index % kWarpgroups == warpgroup) {
        wait_for(shared.full(stage.index), stage.parity);
        sums.add(shared.stage(stage.index), stage.index, chunk, release);
      }
      stage.advance(args.num_stages);
    }
    scales.share_rows(args, row_scales);
    if (i == 0) scales.share_x(args, shared);
    // Sums lie where the ones before or stages were.
    synchronize_first<kNumConsumers>();
    sender.send(sums);
    finish_tile<kTakesTurns ? kWarpgroups : 1>(args, work, shared, units, tile, row_scales);
  }
}

__device__ inline void init_barriers(const SkinnyArgs& args, const Shared& shared) {
  const int num_warpgroups = args.takes_turns ? 1 : kWarpgroups;
  for (int i = 0; i < args.num_stages; ++i) {
    init_barrier(shared.full(i), 1);
    init_barrier(shared.empty(i), num_warpgroups * kWarpgroupWarps);
  }
  init_barrier(shared.sums_full(), 1);
  publish_barriers();
  if (args.log_splits > 0) {
    const int num_pairs = args.num_parts * args.x_rows / 2;
    arrive_expecting(shared.sums_full(), args.half_rows * num_pairs * int{sizeof(float2)});
  }
}

template <typename T, int kColumns, bool kTakesTurns>
__global__ void __maxnreg__(168) skinny_linear(const __grid_constant__ SkinnyArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(args, memory);
  const SkinnyWork work(args);
  const Producer<T> producer(args, work, shared);
  const bool produces = threadIdx.x >= kNumConsumers;
  if (produces && is_elected()) {
    // First, since it would wait behind copies.
    prefetch_map(&args.weight);
    prefetch_map(&args.x);
    init_barriers(args, shared);
    producer.prefill();
  }
  __syncwarp();
  if (work.num_splits > 1) arrive_at_cluster();
  __syncthreads();
  if (!produces) {
    consume<T, kColumns, kTakesTurns>(args, work, shared);
  } else if (is_elected()) {
    wait_for_previous_grid();
    producer.run();
    // Started before, the next kernels cost more than they gain: on an H200 a step of an 8B model
    // in FP8 takes 2.70, 3.11, 4.45, 5.49 instead of 2.60, 3.13, 4.17, 5.37 ms at 1, 8, 32, 64
    // rows.
    allow_next_grid();
  }
}

template <typename T, int kColumns, bool kTakesTurns>
gpuError_t launch_skinny_kernel(const SkinnyArgs& args, gpuStream_t stream) {
  auto* kernel = &skinny_linear<T, kColumns, kTakesTurns>;
  const int size = args.layout.size;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  if (error != cudaSuccess) return error;
  const int num_splits = 1 << args.log_splits;
  return launch_clusters(kernel,
                         args.num_clusters * num_splits,
                         num_splits,
                         kNumConsumers + kWarpSize,
                         size,
                         stream,
                         args.params.overlaps_previous,
                         args);
}

template <typename T, int kColumns>
gpuError_t launch_skinny_columns(const SkinnyArgs& args, gpuStream_t stream) {
  return args.takes_turns ? launch_skinny_kernel<T, kColumns, true>(args, stream)
                          : launch_skinny_kernel<T, kColumns, false>(args, stream);
}

// `launch_skinny` of one type, in a file of its own.
template <typename T>
gpuError_t launch_skinny(const SkinnyArgs& args, gpuStream_t stream) {
  if (args.x_rows <= 8) return launch_skinny_columns<T, 8>(args, stream);
  if (args.x_rows <= 16) return launch_skinny_columns<T, 16>(args, stream);
  if (args.x_rows <= 32) return launch_skinny_columns<T, 32>(args, stream);
  return launch_skinny_columns<T, 64>(args, stream);
}

}  // namespace atom::ops::device
