// Inside the indexer for Hopper: scores.
//
// A warp has 32 keys in registers, as left operands, and multiplies them by the heads of one query
// after the other, which the block's warps share. Keys come straight from the cache: the order of
// the inner dimension is free, so that a thread's 16 bytes of a row, of a query as of a key, serve
// two steps of it.
#pragma once

#include "ops/attention/device/mma.cuh"
#include "ops/device/elements.cuh"
#include "ops/device/paged_row.cuh"
#include "ops/indexer_top_k/indexer_top_k_kernels.h"

namespace atom::ops::indexer_device {

constexpr int kKeySize = 128;
constexpr int kRowBytes = kKeySize * 2;
constexpr int kMaxHeads = 64;
constexpr int kMaxTokens = 16;  // of a block
constexpr int kScoreWarps = 4;
constexpr int kScoreThreads = kScoreWarps * 32;
constexpr int kWarpKeys = 32;
constexpr int kBlockKeys = kScoreWarps * kWarpKeys;
constexpr uint32_t kAllLanes = 0xffffffffu;

struct ScoreArgs {
  IndexerTopKArgs params;
  int first_token;
  int num_tokens;
  int tokens_per_block;  // one after the other, with the same keys as long as they share them
  float* scores;
  int64_t score_stride;
};

// A query in shared memory: rows of odd heads have the halves of each 128 bytes exchanged, so that
// eight lanes meet all banks.
struct Query {
  char heads[kMaxHeads * kRowBytes];
  float weights[kMaxHeads];
};

__device__ inline uint32_t head_offset(int head, int chunk) {
  return head * kRowBytes + ((chunk ^ ((head & 1) << 2)) << 4);
}

__device__ inline float weight_of(const IndexerTopKArgs& args, int64_t token, int head) {
  const int64_t index = token * args.weights_stride + head;
  switch (args.weight_element) {
    case Element::kFloat16:
      return device::to_float(static_cast<const device::Half*>(args.weights)[index]);
    case Element::kBFloat16:
      return device::to_float(static_cast<const device::BFloat16*>(args.weights)[index]);
    default:
      return static_cast<const float*>(args.weights)[index];
  }
}

// Begins to load it; heads beyond the last are zeros.
__device__ inline void load_query(const IndexerTopKArgs& args, int64_t token, Query& query) {
  const int num_heads = static_cast<int>(args.num_heads);
  const int rows = (num_heads + 7) / 8 * 8;
  const char* source = static_cast<const char*>(args.q) + token * args.q_stride * 2;
  const uint32_t target = attention_device::shared_address(query.heads);
  for (int i = threadIdx.x; i < rows * (kRowBytes / 16); i += kScoreThreads) {
    const int head = i / (kRowBytes / 16), chunk = i % (kRowBytes / 16);
    const bool exists = head < num_heads;
    attention_device::copy_async(
        target + head_offset(head, chunk), source + (exists ? i * 16 : 0), exists);
  }
  attention_device::commit_copies();
  for (int head = threadIdx.x; head < rows; head += kScoreThreads) {
    query.weights[head] = head < num_heads ? weight_of(args, token, head) : 0.0f;
  }
}

// Rows g and g + 8 of two times 16 keys: 16 bytes of every 64.
struct Keys {
  uint4 rows[2][2][4];
};

__device__ inline void load_keys(const IndexerTopKArgs& args,
                                 const PagedRow& row,
                                 int64_t last_key,
                                 int64_t first_key,
                                 Keys& keys) {
  const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const char* sources[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t key = min(first_key + m * 16 + j * 8 + g, last_key);
      sources[m][j] = static_cast<const char*>(args.key_cache) +
                      device::slot_of(args.batch, row, key) * kRowBytes + c * 16;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        keys.rows[m][j][i] = __ldg(reinterpret_cast<const uint4*>(sources[m][j] + i * 64));
      }
    }
  }
}

// Sums over heads of this thread's keys (m, j), over its two columns of every eight.
template <typename T, bool kRelu>
__device__ inline void add_heads(const Keys& keys,
                                 const Query& query,
                                 int num_heads,
                                 float (&sums)[2][2]) {
  const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) sums[m][0] = sums[m][1] = 0;
#pragma unroll 2
  for (int first = 0; first < num_heads; first += 8) {
    float products[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 q =
          *reinterpret_cast<const uint4*>(query.heads + head_offset(first + g, c + i * 4));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint4 &low = keys.rows[m][0][i], &high = keys.rows[m][1][i];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y};
        attention_device::multiply_add<T>(products[m], even, q.x, q.y);
        const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
        attention_device::multiply_add<T>(products[m], odd, q.z, q.w);
      }
    }
    const float2 weights = *reinterpret_cast<const float2*>(query.weights + first + c * 2);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float left = products[m][j * 2], right = products[m][j * 2 + 1];
        if constexpr (kRelu) {
          left = left < 0 ? 0.0f : left;  // NaN stays
          right = right < 0 ? 0.0f : right;
        }
        sums[m][j] = fmaf(weights.x, left, fmaf(weights.y, right, sums[m][j]));
      }
    }
  }
}

__device__ inline void store_scores(const ScoreArgs& args,
                                    int token,
                                    int64_t position,
                                    int64_t first_key,
                                    const float (&sums)[2][2]) {
  const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  float* row = args.scores + (token - args.first_token) * args.score_stride;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = sums[m][j];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int64_t key = first_key + m * 16 + j * 8 + g;
      if (c == 0 && key <= position) row[key] = args.params.scale * sum;
    }
  }
}

// grid: blocks that share the keys, groups of tokens.
template <typename T, bool kRelu>
__global__ void __launch_bounds__(kScoreThreads, 3)
    indexer_scores_kernel(const __grid_constant__ ScoreArgs args) {
  __shared__ __align__(16) Query queries[2];
  __shared__ PagedRow rows[kMaxTokens];
  const IndexerTopKArgs& params = args.params;
  const int num_heads = static_cast<int>(params.num_heads);
  const int first = args.first_token + blockIdx.y * args.tokens_per_block;
  const int num_tokens = min(args.tokens_per_block, args.first_token + args.num_tokens - first);
  if (threadIdx.x < num_tokens) {
    rows[threadIdx.x] = device::find_row(params.batch, first + threadIdx.x);
  }
  __syncthreads();
  int64_t most = 0;  // keys of any of the tokens that are scored
  for (int i = 0; i < num_tokens; ++i) {
    if (rows[i].position >= params.top_k) most = max(most, rows[i].position + 1);
  }
  const int warp = threadIdx.x / 32;
  bool has_query = false;  // the block's only one
  for (int64_t chunk = int64_t{blockIdx.x} * kBlockKeys; chunk < most;
       chunk += int64_t{gridDim.x} * kBlockKeys) {
    const int64_t first_key = chunk + warp * kWarpKeys;
    const int32_t* table = nullptr;
    int64_t last_key = -1;
    Keys keys;
    if (!has_query) load_query(params, first, queries[0]);
    for (int i = 0; i < num_tokens; ++i) {
      const PagedRow row = rows[i];
      const bool is_scored = row.position >= params.top_k && chunk <= row.position;
      if (is_scored && (row.block_table != table || row.position > last_key)) {
        table = row.block_table;
        last_key = row.position;
        // Of a sequence's tokens in this block the last one sees the most.
        for (int next = i + 1; next < num_tokens && rows[next].block_table == table; ++next) {
          last_key = rows[next].position;
        }
        load_keys(params, row, last_key, first_key, keys);
      }
      if (i + 1 < num_tokens) {
        load_query(params, first + i + 1, queries[(i + 1) % 2]);
        attention_device::wait_for_copies<1>();
      } else {
        attention_device::wait_for_copies<0>();
      }
      if (!has_query) __syncthreads();
      if (is_scored) {
        float sums[2][2];
        add_heads<T, kRelu>(keys, queries[i % 2], num_heads, sums);
        store_scores(args, first + i, row.position, first_key, sums);
      }
      has_query = num_tokens == 1;
      if (!has_query) __syncthreads();  // the query has been read
    }
  }
}

}  // namespace atom::ops::indexer_device
