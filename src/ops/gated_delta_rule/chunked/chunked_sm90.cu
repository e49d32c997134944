// The gated delta rule by chunks on Hopper: one kernel for what of a chunk does not depend on the
// state, then one that goes from chunk to chunk.
#include "ops/gated_delta_rule/chunked/chunked_sm90.h"

#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/gated_delta_rule/chunked/advance_results.cuh"
#include "ops/gated_delta_rule/chunked/advance_states.cuh"
#include "ops/gated_delta_rule/chunked/prepare.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

// How many blocks share a key head's value heads.
__host__ __device__ int64_t blocks_per_key(const GatedDeltaRuleArgs& args) {
  return (args.num_v_heads / args.num_k_heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
}

// A block's part of the first kernel.
__device__ void prepare_chunk(const GatedDeltaRuleArgs& args,
                              ChunkRecord* records,
                              PrepareShared& shared) {
  const int64_t place = blockIdx.y;
  const ChunkedSequence sequence(args.batch, sequence_of_chunk(args.batch, place));
  const int64_t chunk = place - sequence.first_chunk;
  if (chunk >= sequence.num_chunks()) return;
  const int64_t blocks = blocks_per_key(args), key_head = blockIdx.x / blocks;
  const int64_t heads_per_key = args.num_v_heads / args.num_k_heads;
  const int64_t first = blockIdx.x % blocks * kHeadsAtOnce;
  const int num_heads = static_cast<int>(min(heads_per_key - first, int64_t{kHeadsAtOnce}));
  Preparation(args, sequence, chunk, key_head, shared)
      .run(key_head * heads_per_key + first, num_heads, records + place * args.num_v_heads);
}

// grid: parts of key heads, places of chunks.
__global__ void __launch_bounds__(kPrepareThreads, 4)
    prepare_chunks_kernel(GatedDeltaRuleArgs args, ChunkRecord* records) {
  extern __shared__ __align__(1024) uint8_t shared[];
  device::allow_next_grid();
  device::wait_for_previous_grid();
  prepare_chunk(args, records, *reinterpret_cast<PrepareShared*>(shared));
}

// The same beside the kernel that reads the records, which was launched before and let this one
// start when what both read was there. The last block ends after that kernel: what follows this one
// follows both.
__global__ void __launch_bounds__(kPrepareThreads, 4)
    prepare_chunks_beside_kernel(GatedDeltaRuleArgs args, ChunkRecord* records, ChunkFlags flags) {
  extern __shared__ __align__(1024) uint8_t shared[];
  device::allow_next_grid();
  prepare_chunk(args, records, *reinterpret_cast<PrepareShared*>(shared));
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* flag = flags.ready + blockIdx.y * gridDim.x + blockIdx.x;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
  }
  if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y) device::wait_for_previous_grid();
}

constexpr int kClearThreads = 256;

__global__ void __launch_bounds__(kClearThreads) clear_flags_kernel(uint32_t* flags, int count) {
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int index = static_cast<int>(blockIdx.x) * kClearThreads + static_cast<int>(threadIdx.x);
  if (index < count) flags[index] = 0;
}

// Where the state behind a sequence's last token goes.
__device__ int64_t last_slot(const StateBatchArgs& batch, int64_t index) {
  if (batch.token_slots == nullptr) return batch.state_slots[index];
  return batch.token_slots[batch.query_start[index + 1] - 1];
}

__device__ void init_ring(const Ring& ring) {
  for (int stage = 0; stage < ring.num_stages; ++stage) {
    device::init_barrier(ring.full_at(stage), 1);
    device::init_barrier(ring.empty_at(stage), kGroupThreads);
  }
}

// What a block of the second kernel has of its shared memory; all its threads come here.
__device__ AdvanceBuffers set_up(uint8_t* shared, uint64_t* barriers) {
  const uint32_t unaligned = device::shared_address(shared) % 1024;
  const uint32_t first = device::shared_address(barriers);
  const AdvanceBuffers buffers = {
      .shared = reinterpret_cast<AdvanceShared*>(shared + (1024 - unaligned) % 1024),
      .states = {first, kStateStages},
      .results = {first + 2 * kStateStages * 8, kResultStages}};
  if (threadIdx.x == 0) {
    init_ring(buffers.states);
    init_ring(buffers.results);
    device::publish_barriers();
  }
  __syncthreads();
  return buffers;
}

// A block's part of the second kernel: half of a value head of a sequence.
__device__ __forceinline__ void advance_chunks(const AdvanceArgs& args,
                                               const ChunkedSequence& sequence,
                                               const AdvanceBuffers& buffers) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const int64_t head = blockIdx.x / 2, index = blockIdx.y;
  const int half = blockIdx.x % 2;
  // Tells the compiler that it is uniform.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == 0) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kStateRegisters));
    const int64_t from = rule.batch.state_slots[index], to = last_slot(rule.batch, index);
    if (from >= rule.batch.num_slots || to < 0 || to >= rule.batch.num_slots) gpu_trap();
    const int64_t bytes = rule.state_element == Element::kFloat32 ? 4 : 2;
    const auto state_in = [&](int64_t slot) {
      const int64_t at = (slot * rule.num_v_heads + head) * kHeadDim * kHeadDim;
      return static_cast<uint8_t*>(rule.state) + at * bytes;
    };
    const bool has_history = rule.batch.seq_lens[index] > sequence.num_tokens;
    AdvanceStates(args, sequence, half, buffers)
        .run(has_history ? state_in(from) : nullptr, state_in(to));
  } else if (group == 1) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kResultRegisters));
    AdvanceResults(args, sequence, head, half, buffers).run();
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kLoadRegisters));
    if (threadIdx.x == 2 * kGroupThreads) ChunkLoader(args, sequence, head, half, buffers).run();
  }
}

// grid: halves of value heads, sequences.
__global__ void __launch_bounds__(kAdvanceThreads, 1)
    advance_chunks_kernel(const __grid_constant__ AdvanceArgs args) {
  extern __shared__ uint8_t shared[];
  __shared__ __align__(8) uint64_t barriers[kNumBarriers];
  device::allow_next_grid();
  const AdvanceBuffers buffers = set_up(shared, barriers);
  device::wait_for_previous_grid();
  // With flags: what the kernel beside the first one has left.
  const bool is_done =
      args.flags.left != nullptr && args.flags.left[blockIdx.y * gridDim.x + blockIdx.x] == 0;
  const ChunkedSequence sequence(args.rule.batch, blockIdx.y);
  if (is_done || sequence.num_tokens == 0) return;
  advance_chunks(args, sequence, buffers);
}

// Nanoseconds in which the first kernel begins, unless whoever watches the device lets kernels run
// only one after the other.
constexpr uint64_t kPatience = 2'000'000;

// Whether the first record is there in time.
__device__ bool sees_first_record(const uint32_t* flag) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  while (!is_ready(flag)) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin > kPatience) return false;
  }
  return true;
}

// The same grid beside the kernel that leaves the records, which starts when all blocks of this one
// are there. A block that sees nothing of it leaves its part to the kernel above.
__global__ void __launch_bounds__(kAdvanceThreads, 1)
    advance_chunks_beside_kernel(const __grid_constant__ AdvanceArgs args) {
  extern __shared__ uint8_t shared[];
  __shared__ __align__(8) uint64_t barriers[kNumBarriers];
  __shared__ bool has_begun;
  const AdvanceBuffers buffers = set_up(shared, barriers);
  device::wait_for_previous_grid();
  device::allow_next_grid();
  const ChunkedSequence sequence(args.rule.batch, blockIdx.y);
  if (sequence.num_tokens == 0) return;
  if (threadIdx.x == 0) {
    has_begun = sees_first_record(flag_of_first(args, sequence, blockIdx.x / 2));
    if (!has_begun) args.flags.left[blockIdx.y * gridDim.x + blockIdx.x] = 1;
  }
  __syncthreads();
  if (has_begun) advance_chunks(args, sequence, buffers);
}

bool encode_rows(const GatedDeltaRuleArgs& args, CUtensorMap* map) {
  const int64_t channels = (2 * args.num_k_heads + args.num_v_heads) * kHeadDim;
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(channels), static_cast<cuuint64_t>(args.batch.num_tokens)},
      {static_cast<cuuint64_t>(args.qkv_stride * 2)},
      {64, kChunk}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           args.qkv,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

ChunkRecord* records_in(const void* workspace) {
  constexpr uintptr_t kMask = alignof(ChunkRecord) - 1;
  return reinterpret_cast<ChunkRecord*>((reinterpret_cast<uintptr_t>(workspace) + kMask) & ~kMask);
}

int64_t blocks_of_place(const GatedDeltaRuleArgs& args) {
  return args.num_k_heads * blocks_per_key(args);
}
int64_t blocks_of_sequence(const GatedDeltaRuleArgs& args) {
  return 2 * args.num_v_heads;
}

// Behind the records.
int64_t num_flags(const GatedDeltaRuleArgs& args) {
  return max_chunks(args.batch) * blocks_of_place(args) +
         args.batch.num_sequences * blocks_of_sequence(args);
}
ChunkFlags flags_in(const GatedDeltaRuleArgs& args, void* workspace) {
  ChunkRecord* behind = records_in(workspace) + max_chunks(args.batch) * args.num_v_heads;
  auto* ready = reinterpret_cast<uint32_t*>(behind);
  return {ready, ready + max_chunks(args.batch) * blocks_of_place(args)};
}

template <typename Kernel>
bool allow_shared(Kernel* kernel, int size) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size) ==
         cudaSuccess;
}

dim3 grid_of_chunks(const GatedDeltaRuleArgs& args) {
  return dim3(static_cast<unsigned>(blocks_of_place(args)),
              static_cast<unsigned>(max_chunks(args.batch)));
}

void launch_advance(void (*kernel)(AdvanceArgs), const AdvanceArgs& args, void* queue) {
  if (allow_shared(kernel, kAdvanceSharedBytes)) {
    (void)device::launch(kernel,
                         dim3(static_cast<unsigned>(blocks_of_sequence(args.rule)),
                              static_cast<unsigned>(args.rule.batch.num_sequences)),
                         dim3(kAdvanceThreads),
                         kAdvanceSharedBytes,
                         static_cast<gpuStream_t>(queue),
                         true,
                         args);
  }
  check_gpu_launch("gated_delta_rule");
}

}  // namespace

bool fits_chunked_sm90(const GatedDeltaRuleArgs& args) {
  return args.element == Element::kBFloat16 && args.head_k_dim == kHeadDim &&
         args.head_v_dim == kHeadDim && is_aligned(args.qkv, args.qkv_stride) &&
         is_aligned(args.out, args.out_stride) &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

int64_t chunked_sm90_workspace_size(const GatedDeltaRuleArgs& args) {
  return max_chunks(args.batch) * args.num_v_heads * static_cast<int64_t>(sizeof(ChunkRecord)) +
         int64_t{alignof(ChunkRecord)} + num_flags(args) * static_cast<int64_t>(sizeof(uint32_t));
}

void prepare_chunks_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue) {
  if (allow_shared(prepare_chunks_kernel, sizeof(PrepareShared))) {
    (void)device::launch(prepare_chunks_kernel,
                         grid_of_chunks(args),
                         dim3(kPrepareThreads),
                         sizeof(PrepareShared),
                         static_cast<gpuStream_t>(queue),
                         true,
                         args,
                         records_in(workspace));
  }
  check_gpu_launch("gated_delta_rule");
}

bool advance_chunks_sm90(const GatedDeltaRuleArgs& args, const void* workspace, void* queue) {
  AdvanceArgs advance = {.rule = args,
                         .records = records_in(workspace),
                         .rows = {},
                         .flags = {},
                         .blocks_of_place = blocks_of_place(args)};
  if (!encode_rows(args, &advance.rows)) return false;
  launch_advance(advance_chunks_kernel, advance, queue);
  return true;
}

bool chunked_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue) {
  prepare_chunks_sm90(args, workspace, queue);
  return advance_chunks_sm90(args, workspace, queue);
}

bool chunked_beside_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue) {
  // Half of the multiprocessors are the first kernel's: on an H200 8192 tokens take 333 us instead
  // of 375 side by side. With 1024 the kernels before these took 79 instead of 66.
  constexpr int64_t kMinTokens = 4096;
  const int64_t num_sequences = args.batch.num_sequences;
  const int64_t num_blocks = blocks_of_sequence(args) * num_sequences;
  if (args.batch.num_tokens < kMinTokens * num_sequences ||
      2 * num_blocks > device_attribute(cudaDevAttrMultiProcessorCount)) {
    return chunked_sm90(args, workspace, queue);
  }
  const auto stream = static_cast<gpuStream_t>(queue);
  const ChunkFlags flags = flags_in(args, workspace);
  AdvanceArgs advance = {.rule = args,
                         .records = records_in(workspace),
                         .rows = {},
                         .flags = flags,
                         .blocks_of_place = blocks_of_place(args)};
  if (!encode_rows(args, &advance.rows)) return false;
  const int count = static_cast<int>(num_flags(args));
  (void)device::launch(clear_flags_kernel,
                       dim3((count + kClearThreads - 1) / kClearThreads),
                       dim3(kClearThreads),
                       0,
                       stream,
                       true,
                       flags.ready,
                       count);
  launch_advance(advance_chunks_beside_kernel, advance, queue);
  if (allow_shared(prepare_chunks_beside_kernel, sizeof(PrepareShared))) {
    (void)device::launch(prepare_chunks_beside_kernel,
                         grid_of_chunks(args),
                         dim3(kPrepareThreads),
                         sizeof(PrepareShared),
                         stream,
                         true,
                         args,
                         records_in(workspace),
                         flags);
  }
  check_gpu_launch("gated_delta_rule");
  advance.flags.ready = nullptr;
  launch_advance(advance_chunks_kernel, advance, queue);
  return true;
}

}  // namespace atom::ops
