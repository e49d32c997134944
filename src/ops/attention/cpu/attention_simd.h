// Inside attention: the tiled kernel over a kind of arithmetic, which the file of each instruction
// set includes. The template arguments have internal linkage, and so has every instance.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ops/attention/cpu/direct.h"
#include "ops/attention/cpu/pack.h"
#include "ops/attention/cpu/soften.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

// Rows [row, row + kR) against the packed tile.
template <typename Math, int kR>
void attend_rows(AttentionTiles<Math>& tiles, int64_t row, int64_t tile_begin, int64_t vectors) {
  constexpr int kWidth = Math::Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  alignas(64) float shrink[kWidth];
  multiply<Math, kR>(tiles.q + row * tiles.head_dim,
                     tiles.head_dim,
                     tiles.keys,
                     kTile,
                     tiles.head_dim / Math::kDepth,
                     vectors,
                     nullptr,
                     tiles.scores,
                     kTile);
  soften<Math, kR>(tiles, row, tile_begin, vectors, tiles.scores, tiles.weights, shrink);
  multiply<Math, kR>(tiles.weights,
                     kTile,
                     tiles.values,
                     tiles.padded_dim,
                     vectors * kWidth / Math::kDepth,
                     tiles.padded_dim / kWidth,
                     shrink,
                     tiles.out + row * tiles.padded_dim,
                     tiles.padded_dim);
}

// Rows of all numbers that a kind of arithmetic by tiles has at once, against the packed tile.
template <typename Math>
void attend_rows_by_tiles(
    AttentionTiles<Math>& tiles, int64_t row, int64_t rows, int64_t tile_begin, int64_t vectors) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  constexpr int64_t kSize = sizeof(typename Math::Operand);
  if (rows != tiles.rows_of_tiles) {
    Math::begin(rows);
    tiles.rows_of_tiles = rows;
  }
  Math::multiply(tiles.q + row * tiles.head_dim,
                 tiles.head_dim * kSize,
                 tiles.keys,
                 kTile * Math::kDepth * kSize,
                 tiles.head_dim / (kWidth * Math::kDepth),
                 vectors,
                 false,
                 tiles.scores + row * kTile,
                 kTile * sizeof(float));
  alignas(64) float shrink[Math::kRows];
  soften_rows(tiles, row, rows, tile_begin, vectors, shrink);
  for (int64_t r = 0; r < rows; ++r) {
    if (shrink[r] == 1.0f) continue;
    float* out = tiles.out + (row + r) * tiles.padded_dim;
    for (int64_t d = 0; d < tiles.padded_dim; d += kWidth) {
      Simd::store(out + d, Simd::mul(Simd::load(out + d), Simd::set(shrink[r])));
    }
  }
  Math::multiply(tiles.weights + row * kTile,
                 kTile * kSize,
                 tiles.values,
                 tiles.padded_dim * Math::kDepth * kSize,
                 vectors * kWidth / Math::kKeyMultiple,
                 tiles.padded_dim / kWidth,
                 true,
                 tiles.out + row * tiles.padded_dim,
                 tiles.padded_dim * sizeof(float));
}

// Rows [begin, end) against the packed tile, in blocks that skip the keys none of their rows sees.
template <typename Math>
void attend_tile(AttentionTiles<Math>& tiles,
                 int64_t row_begin,
                 int64_t row_end,
                 int64_t tile_begin) {
  constexpr int kWidth = Math::Simd::kWidth;
  for (int64_t row = row_begin; row < row_end; row += Math::kRows) {
    const int64_t rows = row_end - row < Math::kRows ? row_end - row : Math::kRows;
    const int64_t first = tiles.positions[row], last = tiles.positions[row + rows - 1];
    const int64_t end =
        visible_span(last, tiles.sliding_window, tile_begin, kAttentionTileKeys).end;
    const int64_t begin =
        visible_span(first, tiles.sliding_window, tile_begin, kAttentionTileKeys).begin;
    if (end <= 0 || begin >= kAttentionTileKeys) continue;
    const int64_t vectors = round_up(end, key_multiple<Math>) / kWidth;
    if constexpr (HasTiles<Math>) {
      attend_rows_by_tiles(tiles, row, rows, tile_begin, vectors);
      continue;
    }
    switch (rows) {
      case 1:
        attend_rows<Math, 1>(tiles, row, tile_begin, vectors);
        break;
      case 2:
        attend_rows<Math, 2>(tiles, row, tile_begin, vectors);
        break;
      case 3:
        attend_rows<Math, 3>(tiles, row, tile_begin, vectors);
        break;
      case 4:
        attend_rows<Math, 4>(tiles, row, tile_begin, vectors);
        break;
      case 5:
        attend_rows<Math, 5>(tiles, row, tile_begin, vectors);
        break;
      default:
        attend_rows<Math, 6>(tiles, row, tile_begin, vectors);
    }
  }
}

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

// The tiles of a task, packed one head at a time.
template <typename Math, typename T>
void attend_packed(const AttentionArgs& args,
                   const AttentionTask& task,
                   int64_t num_rows,
                   AttentionSpan keys,
                   AttentionTiles<Math>& tiles,
                   ExpandedTile<T>* expanded) {
  constexpr int kTile = kAttentionTileKeys;
  const int32_t* table = args.block_tables + task.sequence * args.block_table_stride;
  const int64_t head_size = args.head_dim * static_cast<int64_t>(sizeof(T));
  const AttentionHeads cached = cached_heads<T>(args, task);
  const int64_t first_offset = expanded == nullptr ? cached.offset : 0;
  AttentionTokens tokens[2];
  AttentionTokens* current = &tokens[0];
  AttentionTokens* next = &tokens[1];
  const int64_t first_tile = keys.begin / kTile * kTile;
  locate_tokens(args, table, first_tile, keys, *current, tiles);
  for (int64_t tile = first_tile; tile < keys.end; tile += kTile) {
    locate_tokens(args, table, tile + kTile, keys, *next, tiles);
    const int64_t left = keys.end - tile < kTile ? keys.end - tile : kTile;
    const int64_t num_keys = round_up(left, key_multiple<Math>);
    TokenPrefetch next_keys(next->keys, kTile, cached.offset, cached.size);
    TokenPrefetch next_values(next->values, kTile, cached.offset, cached.size);
    if (expanded != nullptr) expand_tile<typename Math::Simd>(args, task, *current, *expanded);
    for (int64_t head = 0; head < task.num_kv_heads; ++head) {
      const int64_t offset = first_offset + head * head_size;
      pack_keys<Math, T>(tiles, current->keys, offset, num_keys, next_keys);
      pack_values<Math, T>(tiles, current->values, offset, num_keys, next_values);
      attend_tile(tiles, head * num_rows, (head + 1) * num_rows, tile);
    }
    AttentionTokens* done = current;
    current = next;
    next = done;
  }
}

// `expanded`: room for a tile of a cache in FP8, null for other caches.
template <typename Math, typename T>
void attend_task(const AttentionArgs& args, const AttentionTask& task, ExpandedTile<T>* expanded) {
  constexpr int kWidth = Math::Simd::kWidth;
  AttentionTiles<Math> tiles;
  tiles.head_dim = args.head_dim;
  tiles.padded_dim = (args.head_dim + kWidth - 1) / kWidth * kWidth;
  tiles.token_size = args.num_kv_heads * args.head_dim * cache_element_size<T>(args);
  tiles.sliding_window = args.sliding_window;
  tiles.scale = args.scale * args.k_scale * kAttentionLog2E;
  memset(tiles.zeros, 0, sizeof(tiles.zeros));
  start_rows<Math, T>(args, task, tiles);
  const int64_t num_rows = task.num_queries * (args.num_heads / args.num_kv_heads);
  const int64_t key_end = tiles.positions[num_rows - 1] + 1;
  const AttentionSpan keys = {key_end - task.num_keys, key_end};
  if constexpr (HasTiles<Math>) {
    attend_packed<Math, T>(args, task, num_rows, keys, tiles, expanded);
    Math::end();
  } else if (!attend_directly<Math, T>(args, task, num_rows, keys, tiles, expanded)) {
    attend_packed<Math, T>(args, task, num_rows, keys, tiles, expanded);
  }
  finish_rows<Math, T>(args, task, tiles);
}

template <typename Math, typename T>
void attend(const AttentionArgs& args, const AttentionTask& task) {
  if (args.float8_cache) {
    ExpandedTile<T> expanded;
    attend_task<Math, T>(args, task, &expanded);
  } else {
    attend_task<Math, T>(args, task, nullptr);
  }
}

// Products in float32 of operands expanded from any element type.
template <typename SimdType, int kMaxVectors>
struct Float32Math {
  using Simd = SimdType;
  using Operand = float;
  using Packed = typename Simd::Float;
  static constexpr int kDepth = 1;
  static constexpr int kRows = 6;
  static constexpr int kVectors = kMaxVectors;

  static Packed broadcast(const float* p) { return Simd::set(*p); }
  static Packed load_packed(const float* p) { return Simd::load(p); }
  static Packed packed(typename Simd::Float units) { return units; }
  static Packed multiply_add(Packed a, Packed b, Packed c) { return Simd::fma(a, b, c); }
  static void store_weights(float* p, Packed weights) { Simd::store(p, weights); }

  template <typename T>
  static Packed load_units(const T* row, int64_t begin) {
    return Simd::load(row + begin);
  }
  template <typename T>
  static Packed load_units(const T* row, int64_t begin, int64_t count) {
    return Simd::load(row + begin, count);
  }
  template <typename T>
  static void copy_operands(const T* from, int64_t size, float* to) {
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(from + i));
    if (i < size) Simd::store(to + i, size - i, Simd::load(from + i, size - i));
  }
  // A vector of one row.
  template <typename T>
  static inline __attribute__((always_inline)) void load_values(const char* const* rows,
                                                                int64_t dim,
                                                                Packed* values) {
    values[0] = Simd::load(reinterpret_cast<const T*>(rows[0]) + dim);
  }
  // One row, padded with zeros to whole vectors.
  template <typename T>
  static void interleave(const char* const* rows, int64_t size, float* to) {
    const T* row = reinterpret_cast<const T*>(rows[0]);
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(row + i));
    if (i < size) Simd::store(to + i, Simd::load(row + i, size - i));
  }
};

}  // namespace atom::ops
