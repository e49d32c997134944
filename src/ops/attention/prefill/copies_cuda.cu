#include "ops/attention/prefill/copies_cuda.h"

#include <algorithm>

#include "ops/attention/device/mma.cuh"
#include "ops/attention/device/work.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

constexpr int kThreads = 256;
constexpr int kVectors = 4;        // of keys, and of values, that a thread has on their way at once
constexpr int kBlockTokens = 128;  // of the copies: a tile of the kernels that read them
constexpr int kPartTokens = 16;    // of a part, which lies in one block of the cache
constexpr int kParts = kBlockTokens / kPartTokens;
// Queries of the longest chunk. With fewer the copy costs about what it saves.
constexpr int kMinQueries = 128;
constexpr int64_t kMaxCopyBytes = int64_t{256} << 20;  // of keys and values together

struct CopyArgs {
  AttentionArgs params;
  int min_queries;
  int capacity;  // blocks of the copies
  int64_t table_stride;
  void* keys;            // [capacity, kBlockTokens, num_kv_heads, head_dim] of q's type
  void* values;          // like keys
  int32_t* tables;       // [num_sequences, table_stride]
  int32_t* copied_lens;  // [num_sequences]
  int32_t* direct_lens;  // [num_sequences]
};

__device__ int first_key_of(const AttentionArgs& params, int sequence) {
  const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
  return first_visible_key(params.seq_lens[sequence] - num_queries, params.sliding_window);
}

// Blocks that the copy of a sequence takes; 0 for one that is not to be copied.
__device__ int blocks_of(const CopyArgs& args, int sequence) {
  const AttentionArgs& params = args.params;
  const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
  const int seq_len = params.seq_lens[sequence];
  if (num_queries < args.min_queries || seq_len <= 0) {
    return 0;
  }
  const int blocks =
      (seq_len + kBlockTokens - 1) / kBlockTokens - first_key_of(params, sequence) / kBlockTokens;
  return blocks <= args.capacity ? blocks : 0;
}

// One warp writes which sequences are where.
__device__ void write_lengths(const CopyArgs& args) {
  const int lane = threadIdx.x & 31;
  int before = 0;
  for (int first = 0; first < args.params.num_sequences; first += 32) {
    const int sequence = first + lane;
    const bool exists = sequence < args.params.num_sequences;
    const int blocks = exists ? blocks_of(args, sequence) : 0;
    int end = blocks;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, end, offset);
      end += lane >= offset ? lower : 0;
    }
    end += before;
    if (exists) {
      const bool fits = blocks > 0 && end <= args.capacity;
      const int seq_len = args.params.seq_lens[sequence];
      args.copied_lens[sequence] = fits ? seq_len : 0;
      args.direct_lens[sequence] = fits ? 0 : seq_len;
    }
    before = __shfl_sync(kAllLanes, end, 31);
  }
}

template <typename T>
__device__ uint4 expanded(const uint2& codes) {
  return {expand_to<T>(codes.x & 0xffff),
          expand_to<T>(codes.x >> 16),
          expand_to<T>(codes.y & 0xffff),
          expand_to<T>(codes.y >> 16)};
}

// `count` vectors of 8 elements, of keys and of values.
template <typename T>
__device__ void copy_part(
    const uint2* keys, const uint2* values, uint4* key_copies, uint4* value_copies, int count) {
  for (int first = threadIdx.x; first < count; first += kVectors * kThreads) {
    uint2 codes[2][kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int place = first + i * kThreads;
      if (place < count) {
        codes[0][i] = keys[place];
        codes[1][i] = values[place];
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int place = first + i * kThreads;
      if (place < count) {
        key_copies[place] = expanded<T>(codes[0][i]);
        value_copies[place] = expanded<T>(codes[1][i]);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) attention_copies_kernel(const CopyArgs args) {
  const AttentionArgs& params = args.params;
  if (blockIdx.x == 0 && threadIdx.x < 32) {
    write_lengths(args);
  }
  SequenceCursor cursor;
  const auto count = [&](int sequence) { return blocks_of(args, sequence); };
  const int64_t row_size = int64_t{params.num_kv_heads} * params.head_dim;
  const int num_parts = args.capacity * kParts;
  for (int part = blockIdx.x; part < num_parts; part += gridDim.x) {
    const int block = part / kParts;
    if (!cursor.find(block, params.num_sequences, count)) {
      return;
    }
    const int sequence = cursor.sequence;
    if (block - cursor.item_of_sequence + blocks_of(args, sequence) > args.capacity) {
      return;
    }
    const int first_key = first_key_of(params, sequence);
    const int place = first_key / kBlockTokens + cursor.item_of_sequence;
    if (part % kParts == 0 && threadIdx.x == 0) {
      args.tables[sequence * args.table_stride + place] = block;
    }
    const int token = place * kBlockTokens + part % kParts * kPartTokens;
    if (token + kPartTokens <= first_key || token >= params.seq_lens[sequence]) {
      continue;
    }
    const int page = token / params.block_size;
    const int64_t slot = int64_t{params.block_tables[sequence * params.block_table_stride + page]} *
                             params.block_size +
                         (token - page * params.block_size);
    const int64_t source = slot * row_size / 8;
    const int64_t target = int64_t{part} * kPartTokens * row_size / 8;
    copy_part<T>(static_cast<const uint2*>(params.k_cache) + source,
                 static_cast<const uint2*>(params.v_cache) + source,
                 static_cast<uint4*>(args.keys) + target,
                 static_cast<uint4*>(args.values) + target,
                 static_cast<int>(kPartTokens * row_size / 8));
  }
}

int64_t table_stride_of(const AttentionArgs& params) {
  return (int64_t{params.max_seq_len} + kBlockTokens - 1) / kBlockTokens;
}

// The size of a block of keys or values.
int64_t block_bytes(const AttentionArgs& params) {
  return int64_t{kBlockTokens} * params.num_kv_heads * params.head_dim * 2;
}

// Tables and lengths, rounded up so that what follows is aligned.
int64_t index_bytes(const AttentionArgs& params) {
  const int64_t words = params.num_sequences * (table_stride_of(params) + 2);
  return (words * int64_t{sizeof(int32_t)} + 127) / 128 * 128;
}

// Blocks for all sequences, whatever they have.
int64_t most_blocks(const AttentionArgs& params) {
  return std::min(params.num_sequences, params.num_tokens) * table_stride_of(params);
}

}  // namespace

size_t attention_copies_size(const AttentionArgs& params) {
  const int most_queries = params.max_queries > 0 ? params.max_queries : params.num_tokens;
  if (!params.float8_cache || most_queries < kMinQueries) {
    return 0;
  }
  const int64_t bytes = 2 * block_bytes(params);
  const int64_t blocks = std::min(most_blocks(params), kMaxCopyBytes / bytes);
  return static_cast<size_t>(index_bytes(params) + blocks * bytes);
}

gpuError_t launch_attention_copies(const AttentionArgs& params,
                                   int32_t min_queries,
                                   void* memory,
                                   size_t size,
                                   gpuStream_t stream,
                                   AttentionCopies& copies) {
  const int64_t rest = static_cast<int64_t>(size) - index_bytes(params);
  const int64_t blocks = std::min(most_blocks(params), rest / (2 * block_bytes(params)));
  if (blocks <= 0) {
    return ATOM_GPU(ErrorInvalidValue);
  }
  CopyArgs args;
  args.params = params;
  args.min_queries = min_queries;
  args.capacity = static_cast<int>(blocks);
  args.table_stride = table_stride_of(params);
  args.tables = static_cast<int32_t*>(memory);
  args.copied_lens = args.tables + params.num_sequences * args.table_stride;
  args.direct_lens = args.copied_lens + params.num_sequences;
  args.keys = static_cast<char*>(memory) + index_bytes(params);
  args.values = static_cast<char*>(args.keys) + blocks * block_bytes(params);

  constexpr int64_t kMaxGrid = 132 * 8;
  const auto grid = static_cast<unsigned>(std::min(blocks * kParts, kMaxGrid));
  auto* kernel = params.element == Element::kFloat16 ? &attention_copies_kernel<__half>
                                                     : &attention_copies_kernel<gpu_bfloat16>;
  kernel<<<grid, kThreads, 0, stream>>>(args);

  copies.copied = params;
  copies.copied.k_cache = args.keys;
  copies.copied.v_cache = args.values;
  copies.copied.block_tables = args.tables;
  copies.copied.block_table_stride = args.table_stride;
  copies.copied.seq_lens = args.copied_lens;
  copies.copied.num_blocks = args.capacity;
  copies.copied.block_size = kBlockTokens;
  copies.copied.float8_cache = false;
  copies.direct = params;
  copies.direct.seq_lens = args.direct_lens;
  copies.has_direct = blocks < most_blocks(params);
  return ATOM_GPU(GetLastError)();
}

}  // namespace atom::ops
