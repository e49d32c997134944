// Attention of chunks in any batch, 64 rows of one KV head to a block.
#include "ops/attention/prefill/prefill_cuda.h"

#include "ops/attention/prefill/prefill_mma.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

struct PrefillArgs {
  AttentionArgs params;
  int min_queries;
};

__device__ bool find_row_block(const PrefillArgs& args, RowBlock& block) {
  const AttentionArgs& params = args.params;
  block.group = params.num_heads / params.num_kv_heads;
  block.kv_head = blockIdx.y;
  const auto count = [&](int sequence) {
    const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
    const bool skipped = num_queries < args.min_queries || params.seq_lens[sequence] <= 0;
    return skipped ? 0 : (num_queries * block.group + kRows - 1) / kRows;
  };
  SequenceCursor cursor;
  if (!cursor.find(blockIdx.x, params.num_sequences, count)) {
    return false;
  }
  block.sequence = cursor.sequence;
  block.first_token = params.query_start[block.sequence];
  block.num_queries = params.query_start[block.sequence + 1] - block.first_token;
  block.seq_len = params.seq_lens[block.sequence];
  // The last rows see most keys, so they begin first.
  const int num_blocks = (block.num_queries * block.group + kRows - 1) / kRows;
  block.first_row = (num_blocks - 1 - cursor.item_of_sequence) * kRows;
  const int last_row = min(kRows, block.num_queries * block.group - block.first_row) - 1;
  block.first_key = first_visible_key(block.position(0), params.sliding_window);
  block.end_key = block.position(last_row) + 1;
  return true;
}

template <typename T, typename KV, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    attention_prefill_kernel(const __grid_constant__ PrefillArgs args) {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  extern __shared__ __align__(128) char shared[];
  const AttentionArgs& params = args.params;
  RowBlock block;
  if (!find_row_block(args, block)) {
    return;
  }
  const uint32_t queries = shared_address(shared);
  const uint32_t stages = queries + Tile::kQueryBytes;
  const int begin = block.first_key / Tile::kKeys * Tile::kKeys;
  load_keys_and_values<T, KV, kHeadDim>(params, block, begin, stages);
  commit_copies();
  load_queries<T, KV, kHeadDim>(params, block, shared);

  WarpRows<T, KV, kHeadDim> rows;
  for (int j = 0; j < 2; ++j) {
    rows.position[j] = block.position(threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4 + j * 8);
  }
  const float scale_log2 = params.scale * params.k_scale * kLog2E;
  int stage = 0;
  for (int key = begin; key < block.end_key; key += Tile::kKeys) {
    const int next = key + Tile::kKeys;
    if (next < block.end_key) {
      load_keys_and_values<T, KV, kHeadDim>(
          params, block, next, stages + (stage ^ 1) * 2 * Tile::kBytes);
    }
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    rows.add_tile(
        queries, stages + stage * 2 * Tile::kBytes, key, params.sliding_window, scale_log2);
    __syncthreads();
    stage ^= 1;
  }
  store_rows<T, KV, kHeadDim>(params, block, rows);
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_kernel(const PrefillArgs& args, gpuStream_t stream) {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  const auto kernel = attention_prefill_kernel<T, KV, kHeadDim>;
  const gpuError_t error = ATOM_GPU(FuncSetAttribute)(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (error != ATOM_GPU(Success)) {
    return error;
  }
  const int64_t group = args.params.num_heads / args.params.num_kv_heads;
  const int64_t num_blocks =
      args.params.num_tokens * group / kRows + args.params.num_sequences;  // each may have a rest
  if (num_blocks == 0) {
    return ATOM_GPU(Success);
  }
  const dim3 grid(num_blocks, args.params.num_kv_heads);
  kernel<<<grid, kThreads, Tile::kSharedBytes, stream>>>(args);
  return ATOM_GPU(GetLastError)();
}

template <typename T, typename KV>
gpuError_t launch_for_head_dim(const PrefillArgs& args, gpuStream_t stream) {
  switch (args.params.head_dim) {
    case 64:
      return launch_kernel<T, KV, 64>(args, stream);
    case 128:
      return launch_kernel<T, KV, 128>(args, stream);
    case 256:
      return launch_kernel<T, KV, 256>(args, stream);
    default:
      return ATOM_GPU(ErrorInvalidValue);
  }
}

template <typename T>
gpuError_t launch_for_cache(const PrefillArgs& args, gpuStream_t stream) {
  return args.params.float8_cache ? launch_for_head_dim<T, Float8E4m3>(args, stream)
                                  : launch_for_head_dim<T, T>(args, stream);
}

}  // namespace

bool supports_attention_prefill_cuda(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  return head_dim && element && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0;
}

gpuError_t launch_attention_prefill_cuda(const AttentionArgs& params,
                                         int32_t min_queries,
                                         int32_t* /*counter*/,
                                         gpuStream_t stream) {
  const PrefillArgs args = {params, min_queries};
  return params.element == Element::kBFloat16 ? launch_for_cache<gpu_bfloat16>(args, stream)
                                              : launch_for_cache<__half>(args, stream);
}

}  // namespace atom::ops
