// Inside attention: the rows of a task, from queries and to results.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ops/attention/cpu/soften.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

// Queries into the tile, and the state of their softmaxes before the first key.
template <typename Math, typename T>
void start_rows(const AttentionArgs& args, const AttentionTask& task, AttentionTiles<Math>& tiles) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t start = args.query_start[task.sequence];
  const int64_t num_queries = args.query_start[task.sequence + 1] - start;
  const int64_t first_position = args.seq_lens[task.sequence] - num_queries;
  int64_t row = 0;
  for (int64_t kv = task.first_kv_head; kv < task.first_kv_head + task.num_kv_heads; ++kv) {
    for (int64_t query = task.first_query; query < task.first_query + task.num_queries; ++query) {
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head, ++row) {
        const T* q = static_cast<const T*>(args.q) + (start + query) * args.q_token_stride +
                     head * args.q_head_stride;
        Math::copy_operands(q, args.head_dim, tiles.q + row * args.head_dim);
        const float sink =
            args.sinks == nullptr ? kAttentionLowest : args.sinks[head] * kAttentionLog2E;
        const bool has_sink = sink > kAttentionLowest;
        tiles.positions[row] = first_position + query;
        tiles.largest[row] = has_sink ? sink : kAttentionLowest;
        memset(tiles.sums + row * tiles.kWidth, 0, tiles.kWidth * sizeof(float));
        tiles.sums[row * tiles.kWidth] = has_sink ? 1.0f : 0.0f;
      }
    }
  }
  memset(tiles.out, 0, row * tiles.padded_dim * sizeof(float));
}

template <typename Math, typename T>
void finish_rows(const AttentionArgs& args,
                 const AttentionTask& task,
                 const AttentionTiles<Math>& tiles) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t token = args.query_start[task.sequence] + task.first_query;
  int64_t row = 0;
  for (int64_t kv = task.first_kv_head; kv < task.first_kv_head + task.num_kv_heads; ++kv) {
    for (int64_t query = 0; query < task.num_queries; ++query) {
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head, ++row) {
        const auto factor =
            Simd::set(args.v_scale / Simd::sum(Simd::load(tiles.sums + row * kWidth)));
        const float* from = tiles.out + row * tiles.padded_dim;
        T* to = static_cast<T*>(args.out) + (token + query) * args.out_token_stride +
                head * args.out_head_stride;
        for (int64_t d = 0; d < args.head_dim; d += kWidth) {
          const auto value = Simd::mul(Simd::load(from + d), factor);
          if (args.head_dim - d >= kWidth) {
            Simd::store(to + d, value);
          } else {
            Simd::store(to + d, args.head_dim - d, value);
          }
        }
      }
    }
  }
}

}  // namespace atom::ops
