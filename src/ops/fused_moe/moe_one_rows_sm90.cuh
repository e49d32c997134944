// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: the kernel, and its
// launch.
#pragma once

#include <algorithm>

#include "ops/fused_moe/moe_one_rows_consumer.cuh"
#include "ops/fused_moe/moe_one_rows_copy.cuh"

namespace atom::ops::device::moe_one_rows {

template <typename W>
__global__ void __launch_bounds__(moe_one::kThreads, 1)
    moe_one_rows_kernel(const __grid_constant__ MoeOneRowsArgs args) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared<W>& shared = *reinterpret_cast<Shared<W>*>(memory + args.num_stages * args.stage_size);
  const uint32_t stages = shared_address(memory);
  allow_next_grid();
  if (threadIdx.x == kNumConsumers) {
    for (int stage = 0; stage < args.num_stages; ++stage) {
      init_barrier(shared_address(&shared.full[stage]), 1);
      init_barrier(shared_address(&shared.empty[stage]), kTeamWarps);
    }
    publish_barriers();
  }
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    const int num_choices = moe_one::find_choices(args.call, own_token<W>(), shared.choices);
    if (threadIdx.x == kNumConsumers) shared.num_choices = num_choices;
    __syncthreads();
    Copier<W>(args, stages, shared).run();
    return;
  }
  Consumer<W> consumer(args, stages, shared);
  __syncthreads();
  consumer.run();
}

constexpr int kSharedSize = 227 << 10;

template <typename W>
gpuError_t launch_rows(const FusedMoeGpuCall& call,
                       const MoeOneRowsScratch& scratch,
                       gpuStream_t stream) {
  auto* const kernel = &moe_one_rows_kernel<W>;
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedSize);
  }
  if (error != cudaSuccess) return error;
  const int stage_size =
      std::max(RowLayout<W>(call.hidden_size).stage_size(RowTraits<W>::kHalvesGates ? 1 : 2),
               RowLayout<W>(call.intermediate_size).stage_size(2));
  MoeOneRowsArgs args{call, scratch, 0, (stage_size + 127) / 128 * 128};
  const int room = (kSharedSize - static_cast<int>(sizeof(Shared<W>))) / args.stage_size;
  args.num_stages = std::min(room, kMaxStages);
  return launch(kernel,
                moe_one::blocks_of_tokens(call, num_blocks),
                dim3(moe_one::kThreads),
                args.num_stages * args.stage_size + sizeof(Shared<W>),
                stream,
                true,
                args);
}

}  // namespace atom::ops::device::moe_one_rows
