// The gated delta rule by chunks on Hopper: one kernel for what of a chunk does not depend on the
// state, then one that goes from chunk to chunk.
#include "ops/gated_delta_rule/chunked/chunked_sm90.h"

#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/gated_delta_rule/chunked/advance.cuh"
#include "ops/gated_delta_rule/chunked/prepare.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

// How many blocks share a key head's value heads.
__host__ __device__ int64_t blocks_per_key(const GatedDeltaRuleArgs& args) {
  return (args.num_v_heads / args.num_k_heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
}

// grid: parts of key heads, places of chunks.
__global__ void __launch_bounds__(kPrepareThreads, 3)
    prepare_chunks_kernel(GatedDeltaRuleArgs args, ChunkRecord* records) {
  extern __shared__ __align__(1024) uint8_t shared[];
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int64_t place = blockIdx.y;
  const ChunkedSequence sequence(args.batch, sequence_of_chunk(args.batch, place));
  const int64_t chunk = place - sequence.first_chunk;
  if (chunk >= sequence.num_chunks()) return;
  const int64_t blocks = blocks_per_key(args), key_head = blockIdx.x / blocks;
  const int64_t heads_per_key = args.num_v_heads / args.num_k_heads;
  const int64_t first = blockIdx.x % blocks * kHeadsAtOnce;
  const int num_heads = static_cast<int>(min(heads_per_key - first, int64_t{kHeadsAtOnce}));
  Preparation(args, sequence, chunk, key_head, *reinterpret_cast<PrepareShared*>(shared))
      .run(key_head * heads_per_key + first, num_heads, records + place * args.num_v_heads);
}

// Where the state behind a sequence's last token goes.
__device__ int64_t last_slot(const StateBatchArgs& batch, int64_t index) {
  if (batch.token_slots == nullptr) return batch.state_slots[index];
  return batch.token_slots[batch.query_start[index + 1] - 1];
}

// grid: halves of value heads, sequences.
template <bool kMerged, bool kFull>
__global__ void __launch_bounds__(kAdvanceThreads, 1)
    advance_chunks_kernel(const __grid_constant__ AdvanceArgs args) {
  extern __shared__ uint8_t shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kStages];
  const GatedDeltaRuleArgs& rule = args.rule;
  const int64_t head = blockIdx.x / 2, index = blockIdx.y;
  const int half = blockIdx.x % 2;
  AdvanceBuffers buffers;
  const uint32_t unaligned = device::shared_address(shared) % 1024;
  buffers.stages = reinterpret_cast<AdvanceStage*>(shared + (1024 - unaligned) % 1024);
  buffers.full = device::shared_address(barriers);
  buffers.empty = buffers.full_at(kStages);
  device::allow_next_grid();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      device::init_barrier(buffers.full_at(stage), 1);
      device::init_barrier(buffers.empty_at(stage), kGroupThreads);
    }
    device::publish_barriers();
  }
  __syncthreads();
  device::wait_for_previous_grid();
  const ChunkedSequence sequence(rule.batch, index);
  if (sequence.num_tokens == 0) return;
  if (threadIdx.x < kGroupThreads) {
    const int64_t from = rule.batch.state_slots[index], to = last_slot(rule.batch, index);
    if (from >= rule.batch.num_slots || to < 0 || to >= rule.batch.num_slots) gpu_trap();
    const auto state_in = [&](int64_t slot) {
      return rule.state + (slot * rule.num_v_heads + head) * kHeadDim * kHeadDim;
    };
    const bool has_history = rule.batch.seq_lens[index] > sequence.num_tokens;
    Advance<kMerged, kFull>(args, sequence, head, half, buffers)
        .run(has_history ? state_in(from) : nullptr, state_in(to));
  } else if (threadIdx.x == kGroupThreads) {
    load_chunks(args, sequence, head, half, buffers);
  }
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

template <typename Kernel>
bool allow_shared(Kernel* kernel, int size) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size) ==
         cudaSuccess;
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
         int64_t{alignof(ChunkRecord)};
}

void prepare_chunks_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue) {
  if (allow_shared(prepare_chunks_kernel, sizeof(PrepareShared))) {
    (void)device::launch(prepare_chunks_kernel,
                         dim3(static_cast<unsigned>(args.num_k_heads * blocks_per_key(args)),
                              static_cast<unsigned>(max_chunks(args.batch))),
                         dim3(kPrepareThreads),
                         sizeof(PrepareShared),
                         static_cast<gpuStream_t>(queue),
                         true,
                         args,
                         records_in(workspace));
  }
  check_gpu_launch("gated_delta_rule");
}

bool advance_chunks_sm90(const GatedDeltaRuleArgs& args,
                         const void* workspace,
                         void* queue,
                         int mode) {
  const auto kernel = mode == 0   ? advance_chunks_kernel<false, false>
                      : mode == 1 ? advance_chunks_kernel<true, false>
                      : mode == 2 ? advance_chunks_kernel<false, true>
                                  : advance_chunks_kernel<true, true>;
  AdvanceArgs advance = {.rule = args, .records = records_in(workspace), .rows = {}};
  if (!encode_rows(args, &advance.rows)) return false;
  if (allow_shared(kernel, kAdvanceSharedBytes)) {
    (void)device::launch(kernel,
                         dim3(static_cast<unsigned>(2 * args.num_v_heads),
                              static_cast<unsigned>(args.batch.num_sequences)),
                         dim3(kAdvanceThreads),
                         kAdvanceSharedBytes,
                         static_cast<gpuStream_t>(queue),
                         true,
                         advance);
  }
  check_gpu_launch("gated_delta_rule");
  return true;
}

bool chunked_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue) {
  prepare_chunks_sm90(args, workspace, queue);
  return advance_chunks_sm90(args, workspace, queue);
}

}  // namespace atom::ops
