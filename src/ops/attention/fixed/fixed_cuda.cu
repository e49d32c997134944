// Rows are computed as chunks are (prefill/prefill_mma.cuh), a segment of keys at a time. Where
// sequences are few, a single query's segments go to a block each, and the last one to finish joins
// them by the very steps by which a block joins its own.
#include "ops/attention/fixed/fixed_cuda.h"

#include <algorithm>

#include "ops/attention/fixed/order.cuh"
#include "ops/attention/prefill/prefill_mma.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

// With so many sequences times KV heads the device is full without splitting.
constexpr int kManyRowBlocks = 132;
constexpr int kWarpRows = 16;

struct FixedArgs {
  AttentionArgs params;
  int min_queries;    // sequences with fewer are left alone
  int max_segments;   // of a single query that is split; 0: none is
  float2* softmax;    // [sequences, KV heads, max_segments, kWarpRows] maximum and sum
  float* out;         // [sequences, KV heads, max_segments, kHeadDim / 2, 32] as threads have it
  int32_t* counters;  // [sequences, KV heads] finished segments
};

// The rows of a block and its part of their keys.
struct Item : RowBlock {
  int begin_key;
  int first_segment;
  int num_segments;  // of all blocks of these rows
};

// What one thread has joined of its two rows, laid out as in WarpRows.
template <int kDimTiles>
struct Joined {
  JoinedSoftmax softmax[2];
  float out[kDimTiles][4] = {};

  // A segment's results for row j of the thread: `out_of(n, i)` is element i of tile n.
  template <typename OutOf>
  __device__ void add(int j, float segment_maximum, float segment_sum, const OutOf& out_of) {
    if (segment_maximum == -INFINITY) return;  // the row sees nothing of it
    const JoinedSoftmax::Factors factors = softmax[j].add(segment_maximum, segment_sum);
#pragma unroll
    for (int n = 0; n < kDimTiles; ++n) {
#pragma unroll
      for (int i = j * 2; i < j * 2 + 2; ++i) out[n][i] = factors.join(out[n][i], out_of(n, i));
    }
  }
};

__device__ int num_row_blocks(const FixedArgs& args, int sequence, int group) {
  const AttentionArgs& params = args.params;
  const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
  const bool skipped = num_queries < args.min_queries || params.seq_lens[sequence] <= 0;
  return skipped ? 0 : (num_queries * group + kRows - 1) / kRows;
}

// Segments of a sequence's only query, as items of their own; 1 for other sequences.
__device__ int num_split_segments(const FixedArgs& args, int sequence) {
  const AttentionArgs& params = args.params;
  const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
  const int seq_len = params.seq_lens[sequence];
  if (args.max_segments == 0 || num_queries != 1 || seq_len <= 0) return 1;
  const int first_key = first_visible_key(seq_len - 1, params.sliding_window);
  return segment_of_key(seq_len - 1) - segment_of_key(first_key) + 1;
}

__device__ bool find_item(const FixedArgs& args, int index, SequenceCursor& cursor, Item& item) {
  const AttentionArgs& params = args.params;
  item.group = params.num_heads / params.num_kv_heads;
  item.kv_head = blockIdx.y;
  const auto count = [&](int sequence) {
    return num_row_blocks(args, sequence, item.group) * num_split_segments(args, sequence);
  };
  if (!cursor.find(index, params.num_sequences, count)) {
    return false;
  }
  item.sequence = cursor.sequence;
  item.first_token = params.query_start[item.sequence];
  item.num_queries = params.query_start[item.sequence + 1] - item.first_token;
  item.seq_len = params.seq_lens[item.sequence];
  item.num_segments = num_split_segments(args, item.sequence);
  // The last rows see most keys, so they begin first.
  const int row_block = item.num_segments > 1 ? 0
                                              : num_row_blocks(args, item.sequence, item.group) -
                                                    1 - cursor.item_of_sequence;
  item.first_row = row_block * kRows;
  const int last_row = min(kRows, item.num_queries * item.group - item.first_row) - 1;
  item.first_key = first_visible_key(item.position(0), params.sliding_window);
  item.end_key = item.position(last_row) + 1;
  item.begin_key = item.first_key;
  item.first_segment = 0;
  if (item.num_segments > 1) {
    item.first_segment = cursor.item_of_sequence;
    const int segment = segment_of_key(item.first_key) + item.first_segment;
    item.begin_key = max(item.first_key, first_key_of_segment(segment));
    item.end_key = min(item.end_key, first_key_of_segment(segment + 1));
  }
  return true;
}

template <typename T, typename KV, int kHeadDim>
struct FixedBlock {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  using Rows = WarpRows<T, KV, kHeadDim>;
  using Sums = Joined<Tile::kDimTiles>;

  const FixedArgs& args;
  const Item& item;
  const int warp_row = threadIdx.x / 32 * kWarpRows;
  const int row = warp_row + (threadIdx.x & 31) / 4;  // and the eighth after it

  // All of the item's keys into `joined`, or the only segment of a split row.
  __device__ void compute(char* shared, Sums& joined) {
    const AttentionArgs& params = args.params;
    const uint32_t queries = shared_address(shared);
    const uint32_t stages = queries + Tile::kQueryBytes;
    const int begin = item.begin_key / Tile::kKeys * Tile::kKeys;
    load_keys_and_values<T, KV, kHeadDim>(params, item, begin, stages);
    commit_copies();
    load_queries<T, KV, kHeadDim>(params, item, shared);
    const bool has_rows = item.is_valid(warp_row);
    const float scale_log2 = params.scale * params.k_scale * kLog2E;
    Rows rows = fresh();
    int segment_end = first_key_of_segment(segment_of_key(begin) + 1);
    int stage = 0;
#pragma unroll 1
    for (int key = begin; key < item.end_key; key += Tile::kKeys) {
      const int next = key + Tile::kKeys;
      if (next < item.end_key) {
        load_keys_and_values<T, KV, kHeadDim>(
            params, item, next, stages + (stage ^ 1) * 2 * Tile::kBytes);
      }
      commit_copies();
      wait_for_copies<1>();
      __syncthreads();
      if (has_rows) {
        rows.add_tile(
            queries, stages + stage * 2 * Tile::kBytes, key, params.sliding_window, scale_log2);
        if (next == segment_end || next >= item.end_key) {
          join(rows, joined);
          rows = fresh();
        }
      }
      if (next == segment_end) segment_end = first_key_of_segment(segment_of_key(next) + 1);
      __syncthreads();
      stage ^= 1;
    }
  }

  __device__ Rows fresh() const {
    Rows rows;
    for (int j = 0; j < 2; ++j) rows.position[j] = item.position(row + j * 8);
    return rows;
  }

  __device__ static void join(const Rows& rows, Sums& joined) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = rows.sum[j];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      joined.add(j, rows.maximum[j], sum, [&](int n, int i) { return rows.out[n][i]; });
    }
  }

  __device__ int64_t place(int segment) const {
    const int64_t of_rows = int64_t{item.sequence} * args.params.num_kv_heads + item.kv_head;
    return of_rows * args.max_segments + segment;
  }

  // The first warp calls it, which has all rows of a split item.
  __device__ void store_segment(const Sums& joined) const {
    const int lane = threadIdx.x & 31;
    const int64_t own = place(item.first_segment);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (!item.is_valid(row + j * 8)) continue;
      float* out = args.out + own * (kHeadDim / 2 * 32) + lane;
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; ++n) {
        __stcg(out + (n * 4 + j * 2) * 32, joined.out[n][j * 2]);
        __stcg(out + (n * 4 + j * 2 + 1) * 32, joined.out[n][j * 2 + 1]);
      }
      if (lane % 4 == 0) {
        __stcg(args.softmax + own * kWarpRows + row + j * 8,
               make_float2(joined.softmax[j].maximum, joined.softmax[j].sum));
      }
    }
  }

  // Whether this block finished the last segment of its rows. The counter is then zero again.
  __device__ bool is_last() const {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      int32_t* counter = args.counters + item.sequence * args.params.num_kv_heads + item.kv_head;
      last = atomicAdd(counter, 1) == item.num_segments - 1;
      if (last) *counter = 0;
      __threadfence();
    }
    __syncthreads();
    return last;
  }

  __device__ void join_segments(Sums& joined) const {
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int segment = 0; segment < item.num_segments; ++segment) {
      const int64_t from = place(segment);
      const float* out = args.out + from * (kHeadDim / 2 * 32) + lane;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!item.is_valid(row + j * 8)) continue;
        const float2 softmax = __ldcg(args.softmax + from * kWarpRows + row + j * 8);
        joined.add(
            j, softmax.x, softmax.y, [&](int n, int i) { return __ldcg(out + (n * 4 + i) * 32); });
      }
    }
  }

  __device__ void store(const Sums& joined) const {
    Rows rows = fresh();
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.maximum[j] = joined.softmax[j].maximum;
      // store_rows adds up four threads.
      rows.sum[j] = (threadIdx.x & 3) == 0 ? joined.softmax[j].sum : 0.f;
    }
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.out[n][i] = joined.out[n][i];
    }
    store_rows<T, KV, kHeadDim>(args.params, item, rows);
  }
};

template <typename T, typename KV, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    attention_fixed_kernel(const __grid_constant__ FixedArgs args) {
  using Block = FixedBlock<T, KV, kHeadDim>;
  extern __shared__ __align__(128) char shared[];
  SequenceCursor cursor;
  Item item;
#pragma unroll 1
  for (int index = blockIdx.x; find_item(args, index, cursor, item); index += gridDim.x) {
    Block block{args, item};
    typename Block::Sums joined;
    block.compute(shared, joined);
    if (item.num_segments > 1) {
      if (threadIdx.x < 32) block.store_segment(joined);
      if (!block.is_last()) continue;
      if (threadIdx.x >= 32) continue;
      joined = {};
      block.join_segments(joined);
    }
    block.store(joined);
  }
}

// Where sequences are few, and all rows of a single query fit a warp.
bool is_split(const AttentionArgs& params) {
  return int64_t{params.num_sequences} * params.num_kv_heads <= kManyRowBlocks &&
         params.num_heads / params.num_kv_heads <= kWarpRows;
}

// Segments of a single query at most.
int max_segments_of(const AttentionArgs& params) {
  const int most = params.max_seq_len > 0 ? segment_of_key(params.max_seq_len - 1) + 1 : 0;
  // A window may begin and end within one.
  return params.sliding_window > 0 ? std::min(most, params.sliding_window / kSegmentKeys + 2)
                                   : most;
}

// Places for the results of segments: enough for any number of sequences that is split.
int64_t num_places(const AttentionArgs& params) {
  return int64_t{kManyRowBlocks} * max_segments_of(params);
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_kernel(const FixedArgs& args, gpuStream_t stream) {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  const auto kernel = attention_fixed_kernel<T, KV, kHeadDim>;
  const gpuError_t error = ATOM_GPU(FuncSetAttribute)(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (error != ATOM_GPU(Success)) {
    return error;
  }
  const AttentionArgs& params = args.params;
  const int64_t group = params.num_heads / params.num_kv_heads;
  // Each sequence may have a rest, or segments.
  int64_t num_blocks = params.num_tokens * group / kRows + params.num_sequences;
  if (args.max_segments > 0) {
    num_blocks += 4 * kManyRowBlocks / params.num_kv_heads;  // blocks take several where it is less
  }
  if (params.num_sequences == 0) {
    return ATOM_GPU(Success);
  }
  const dim3 grid(num_blocks, params.num_kv_heads);
  kernel<<<grid, kThreads, Tile::kSharedBytes, stream>>>(args);
  return ATOM_GPU(GetLastError)();
}

template <typename T, typename KV>
gpuError_t launch_for_head_dim(const FixedArgs& args, gpuStream_t stream) {
  switch (args.params.head_dim) {
    case 64:
      return launch_kernel<T, KV, 64>(args, stream);
    case 128:
      return launch_kernel<T, KV, 128>(args, stream);
    default:
      return ATOM_GPU(ErrorInvalidValue);
  }
}

template <typename T>
gpuError_t launch_for_cache(const FixedArgs& args, gpuStream_t stream) {
  return args.params.float8_cache ? launch_for_head_dim<T, Float8E4m3>(args, stream)
                                  : launch_for_head_dim<T, T>(args, stream);
}

}  // namespace

bool supports_attention_fixed_cuda(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  return head_dim && element && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0;
}

size_t attention_fixed_workspace_size(const AttentionArgs& params) {
  return num_places(params) * kWarpRows * (sizeof(float2) + params.head_dim * sizeof(float));
}

size_t attention_fixed_num_counters(const AttentionArgs& params) {
  return is_split(params) ? size_t(params.num_sequences) * params.num_kv_heads : 0;
}

gpuError_t launch_attention_fixed_cuda(const AttentionArgs& params,
                                       int min_queries,
                                       void* workspace,
                                       int32_t* counters,
                                       gpuStream_t stream) {
  FixedArgs args = {};
  args.params = params;
  args.min_queries = min_queries;
  args.max_segments = min_queries <= 1 && is_split(params) ? max_segments_of(params) : 0;
  args.softmax = static_cast<float2*>(workspace);
  args.out = reinterpret_cast<float*>(args.softmax + num_places(params) * kWarpRows);
  args.counters = counters;
  return params.element == Element::kBFloat16 ? launch_for_cache<gpu_bfloat16>(args, stream)
                                              : launch_for_cache<__half>(args, stream);
}

}  // namespace atom::ops
