// Persistent blocks of a warpgroup that loads and two that compute, with a pair of tiles of 64 keys
// in shared memory: a tile is the keys and the values at once.
#include "ops/mla_attention/sm90/mla_sm90.h"

#include "ops/device/programmatic_launch.cuh"
#include "ops/mla_attention/sm90/consumer.cuh"
#include "ops/mla_attention/sm90/launch.cuh"
#include "ops/mla_attention/sm90/producer.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace mla_device;

template <bool kFloat8>
__global__ void __launch_bounds__(kThreads, 1)
    mla_attention_sm90_kernel(const __grid_constant__ Work work) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = kFloat8 ? 104 : 72;
  constexpr int kConsumerRegisters = kFloat8 ? 200 : 216;
  extern __shared__ __align__(1024) char shared[];
  const Buffers buffers = {shared, device::shared_address(shared)};
  if (threadIdx.x == 0) init_barriers(buffers);
  device::wait_for_previous_grid();
  Share share = {};
  if (work.is_split) share = find_share(work, reinterpret_cast<int*>(shared));
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    Producer<kFloat8>(work, buffers).run(share);
  } else if (threadIdx.x < 2 * kWarpgroup) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<0, kFloat8>(work, buffers).run(share);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<1, kFloat8>(work, buffers).run(share);
  }
}

// grid: places of items, slices of their rows.
__global__ void __launch_bounds__(kJoinThreads)
    mla_attention_join_kernel(const __grid_constant__ Work work) {
  __shared__ JoinMemory memory;
  device::wait_for_previous_grid();
  const int share = work.line[0];
  if (share == 0) return;
  int item_index = 0;
  const int unit_index = unit_of_place(work, blockIdx.x, item_index);
  if (unit_index < 0) return;
  const Unit unit = measure_unit(work, unit_index);
  if (item_index >= unit.num_items()) return;
  const JoinedItem item = find_parts(work, share, unit_index, unit, item_index);
  if (item.num_parts == 1) return;
  const int num_rows = min(kRows, unit.num_rows - item_index * kRows);
  for (int row = blockIdx.y; row < num_rows; row += gridDim.y) {
    __syncthreads();
    join_row(work, unit, item, item_index, row, memory);
  }
}

bool is_aligned(const void* data, const int64_t (&strides)[2]) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && strides[0] % 8 == 0 && strides[1] % 8 == 0;
}

// What is refused here the last error says.
template <bool kFloat8>
void launch_kernel(const Work& work, int blocks, bool overlaps, gpuStream_t stream) {
  const auto kernel = mla_attention_sm90_kernel<kFloat8>;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes);
  (void)device::launch(
      kernel, dim3(blocks), dim3(kThreads), Shared::kBytes, stream, overlaps, work);
}

void launch_join(const Work& work, gpuStream_t stream) {
  (void)device::launch(
      mla_attention_join_kernel, grid_of_join(work), dim3(kJoinThreads), 0, stream, true, work);
}

}  // namespace

bool supports_mla_attention_sm90(const MlaAttentionArgs& args) {
  return args.element == Element::kBFloat16 && args.rank == kRank && args.width == kWidth &&
         args.scale > 0 && is_aligned(args.q_latent, args.q_latent_strides) &&
         is_aligned(args.q_rope, args.q_rope_strides) && is_aligned(args.out, args.out_strides) &&
         reinterpret_cast<uintptr_t>(args.cache) % 16 == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

size_t mla_attention_sm90_workspace_size(const MlaAttentionArgs& args,
                                         const MlaSm90Tuning& tuning) {
  // A dry run has no indices yet, and knows how many each token will have.
  const int64_t units = args.top_k > 0 ? args.batch.num_tokens : num_units(args);
  return num_parts(num_blocks(tuning)) * (kRank * sizeof(float) + sizeof(float2)) +
         (1 + units) * sizeof(int32_t);
}

void mla_attention_sm90(const MlaAttentionArgs& args,
                        void* workspace,
                        void* queue,
                        const MlaSm90Tuning& tuning) {
  if (args.batch.num_tokens == 0) return;
  const auto stream = static_cast<gpuStream_t>(queue);
  const Work work = make_work(args, workspace, tuning);
  const int blocks = num_blocks(tuning);
  if (args.float8_cache) {
    launch_kernel<true>(work, blocks, tuning.overlaps_previous, stream);
  } else {
    launch_kernel<false>(work, blocks, tuning.overlaps_previous, stream);
  }
  if (work.is_split) launch_join(work, stream);
  check_gpu_launch("mla_attention");
}

}  // namespace atom::ops
