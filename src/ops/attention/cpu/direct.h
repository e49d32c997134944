// Inside attention: a task of few rows per KV head, such as a decode, straight from the cache. It
// is bound by memory, so it goes over the tokens of all its heads a vector's width of keys at a
// time (with all heads that is a contiguous run): what one chunk of tokens occupies stays in the
// first cache levels, which for a whole tile it does not.
//
// The arithmetic is that of the packed tiles operation for operation, so the results are the same
// bit for bit.
#pragma once

#include <stdint.h>

#include "ops/attention/cpu/expand.h"
#include "ops/attention/cpu/pack.h"
#include "ops/attention/cpu/soften.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

// Scores of one head's rows with a vector's width of keys.
template <typename Math, typename T, int kR>
void score_chunk(const typename Math::Operand* q,
                 int64_t head_dim,
                 const char* const* rows,
                 TokenPrefetch& prefetch,
                 float* scores) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float sum[kR];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) sum[r] = Simd::zero();
  for (int64_t unit = 0; unit < head_dim / Math::kDepth; unit += kWidth) {
    prefetch.advance(kWidth * kWidth * Math::kDepth * static_cast<int64_t>(sizeof(T)));
    typename Simd::Float square[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      square[i] = Math::load_units(reinterpret_cast<const T*>(rows[i]), unit);
    }
    Simd::transpose(square);
    const typename Math::Operand* column = q + unit * Math::kDepth;
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
#pragma GCC unroll 8
      for (int r = 0; r < kR; ++r) {
        sum[r] = Math::multiply_add(Math::broadcast(column + r * head_dim + i * Math::kDepth),
                                    Math::packed(square[i]),
                                    sum[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) Simd::store(scores + r * kAttentionTileKeys, sum[r]);
}

// out (times shrink) += weights . values, over a vector's width of keys, for dims [dim, dim + kN
// vectors).
template <typename Math, typename T, int kR, int kN>
static inline __attribute__((always_inline)) void add_values(const typename Math::Operand* weights,
                                                             const char* const* rows,
                                                             int64_t dim,
                                                             const float* shrink,
                                                             TokenPrefetch& prefetch,
                                                             float* out,
                                                             int64_t out_stride) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float sum[kR][kN];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = Simd::load(out + r * out_stride + dim + n * kWidth);
      if (shrink != nullptr) sum[r][n] = Simd::mul(sum[r][n], Simd::set(shrink[r]));
    }
  }
  for (int key = 0; key < kWidth; key += Math::kDepth) {
    prefetch.advance(kN * kWidth * Math::kDepth * static_cast<int64_t>(sizeof(T)));
    typename Math::Packed values[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; n += Math::kDepth) {
      Math::template load_values<T>(rows + key, dim + n * kWidth, values + n);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const typename Math::Packed weight = Math::broadcast(weights + r * kAttentionTileKeys + key);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sum[r][n] = Math::multiply_add(weight, values[n], sum[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      Simd::store(out + r * out_stride + dim + n * kWidth, sum[r][n]);
    }
  }
}

template <typename Math, typename T, int kR>
void add_value_chunk(const typename Math::Operand* weights,
                     const char* const* rows,
                     int64_t head_dim,
                     const float* shrink,
                     TokenPrefetch& prefetch,
                     float* out) {
  constexpr int kWidth = Math::Simd::kWidth;
  // As many sums as registers hold beside the values.
  constexpr int kMost = Math::kVectors * 4 / (kR <= 2 ? 2 : kR <= 4 ? 4 : 8);
  constexpr int kN = kMost > Math::kDepth ? kMost : Math::kDepth;
  int64_t dim = 0;
  for (; dim + kN * kWidth <= head_dim; dim += kN * kWidth) {
    add_values<Math, T, kR, kN>(weights, rows, dim, shrink, prefetch, out, head_dim);
  }
  for (; dim < head_dim; dim += Math::kDepth * kWidth) {
    add_values<Math, T, kR, Math::kDepth>(weights, rows, dim, shrink, prefetch, out, head_dim);
  }
}

// The tiles of a task with kR rows per KV head.
template <typename Math, typename T, int kR>
void attend_direct(const AttentionArgs& args,
                   const AttentionTask& task,
                   AttentionSpan keys,
                   AttentionTiles<Math>& tiles,
                   ExpandedTile<T>* expanded) {
  constexpr int kTile = kAttentionTileKeys;
  constexpr int kWidth = Math::Simd::kWidth;
  const int32_t* table = args.block_tables + task.sequence * args.block_table_stride;
  const int64_t head_size = args.head_dim * static_cast<int64_t>(sizeof(T));
  const AttentionHeads cached = cached_heads<T>(args, task);
  const int64_t run_size = task.num_kv_heads * head_size;
  const int64_t first_offset = expanded == nullptr ? cached.offset : 0;
  alignas(64) float shrink[kAttentionTaskRows];
  AttentionTokens tokens[2];
  AttentionTokens* current = &tokens[0];
  AttentionTokens* next = &tokens[1];
  const char* rows[kWidth];
  const int64_t first_tile = keys.begin / kTile * kTile;
  locate_tokens(args, table, first_tile, keys, *current, tiles);
  for (int64_t tile = first_tile; tile < keys.end; tile += kTile) {
    locate_tokens(args, table, tile + kTile, keys, *next, tiles);
    if (expanded != nullptr) expand_tile<typename Math::Simd>(args, task, *current, *expanded);
    const int64_t left = keys.end - tile < kTile ? keys.end - tile : kTile;
    const int64_t padded = (left + kWidth - 1) / kWidth * kWidth;
    for (int64_t key = 0; key < padded; key += kWidth) {
      const bool last = key + kWidth == padded;
      TokenPrefetch prefetch(
          last ? current->values : current->keys + key + kWidth, kWidth, first_offset, run_size);
      for (int64_t head = 0; head < task.num_kv_heads; ++head) {
        rows_of_head<kWidth>(current->keys + key, first_offset + head * head_size, tiles, rows);
        score_chunk<Math, T, kR>(tiles.q + head * kR * args.head_dim,
                                 args.head_dim,
                                 rows,
                                 prefetch,
                                 tiles.scores + head * kR * kTile + key);
      }
    }
    soften_rows(tiles, 0, task.num_kv_heads * kR, tile, padded / kWidth, shrink);
    for (int64_t key = 0; key < padded; key += kWidth) {
      const bool last = key + kWidth == padded;
      TokenPrefetch prefetch =
          last ? TokenPrefetch(next->keys, kWidth, cached.offset, cached.size)
               : TokenPrefetch(current->values + key + kWidth, kWidth, first_offset, run_size);
      for (int64_t head = 0; head < task.num_kv_heads; ++head) {
        rows_of_head<kWidth>(current->values + key, first_offset + head * head_size, tiles, rows);
        add_value_chunk<Math, T, kR>(tiles.weights + head * kR * kTile + key,
                                     rows,
                                     args.head_dim,
                                     key == 0 ? shrink + head * kR : nullptr,
                                     prefetch,
                                     tiles.out + head * kR * args.head_dim);
      }
    }
    AttentionTokens* done = current;
    current = next;
    next = done;
  }
}

// False, with nothing done, when the task does not suit this way.
template <typename Math, typename T>
bool attend_directly(const AttentionArgs& args,
                     const AttentionTask& task,
                     int64_t num_rows,
                     AttentionSpan keys,
                     AttentionTiles<Math>& tiles,
                     ExpandedTile<T>* expanded) {
  if (args.head_dim % (Math::Simd::kWidth * Math::kDepth) != 0) return false;
  switch (num_rows) {
    case 1:
      return attend_direct<Math, T, 1>(args, task, keys, tiles, expanded), true;
    case 2:
      return attend_direct<Math, T, 2>(args, task, keys, tiles, expanded), true;
    case 3:
      return attend_direct<Math, T, 3>(args, task, keys, tiles, expanded), true;
    case 4:
      return attend_direct<Math, T, 4>(args, task, keys, tiles, expanded), true;
    default:
      break;
  }
  if constexpr (Math::Simd::kWidth == 16) {
    switch (num_rows) {
      case 5:
        return attend_direct<Math, T, 5>(args, task, keys, tiles, expanded), true;
      case 6:
        return attend_direct<Math, T, 6>(args, task, keys, tiles, expanded), true;
      case 7:
        return attend_direct<Math, T, 7>(args, task, keys, tiles, expanded), true;
      case 8:
        return attend_direct<Math, T, 8>(args, task, keys, tiles, expanded), true;
      default:
        break;
    }
  }
  return false;
}

}  // namespace atom::ops
