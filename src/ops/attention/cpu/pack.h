// Inside attention: from the paged cache to packed tiles of keys and values, with the next tile
// fetched meanwhile.
#pragma once

#include <stdint.h>

#include "ops/attention/cpu/tiles.h"
#include "ops/attention/cpu/token_prefetch.h"

namespace atom::ops {

// Consecutive keys: [begin, end).
struct AttentionSpan {
  int64_t begin;
  int64_t end;
};

// Bytes of an element of the caches; T is the queries' type.
template <typename T>
int64_t cache_element_size(const AttentionArgs& args) {
  return args.float8_cache ? 1 : static_cast<int64_t>(sizeof(T));
}

// Where the heads of a task lie within a token of the caches, in bytes.
struct AttentionHeads {
  int64_t offset;
  int64_t size;
};

template <typename T>
AttentionHeads cached_heads(const AttentionArgs& args, const AttentionTask& task) {
  const int64_t head_size = args.head_dim * cache_element_size<T>(args);
  return {task.first_kv_head * head_size, task.num_kv_heads * head_size};
}

// Where the tokens of a tile lie in the caches.
struct AttentionTokens {
  const char* keys[kAttentionTileKeys];
  const char* values[kAttentionTileKeys];
};

// Where the tile's tokens lie in the caches: null for those outside `keys`, whose
// memory is not touched.
template <typename Math>
void locate_tokens(const AttentionArgs& args,
                   const int32_t* table,
                   int64_t tile_begin,
                   AttentionSpan keys,
                   AttentionTokens& tokens,
                   const AttentionTiles<Math>& tiles) {
  int64_t block = -1, offset = 0;
  for (int64_t i = 0; i < kAttentionTileKeys; ++i) {
    const int64_t key = tile_begin + i;
    tokens.keys[i] = tokens.values[i] = nullptr;
    if (key < keys.begin || key >= keys.end) continue;
    if (block < 0 || ++offset == args.block_size) {
      block = key / args.block_size;
      offset = key % args.block_size;
    }
    const int64_t at = (int64_t{table[block]} * args.block_size + offset) * tiles.token_size;
    tokens.keys[i] = static_cast<const char*>(args.k_cache) + at;
    tokens.values[i] = static_cast<const char*>(args.v_cache) + at;
  }
}

// One head's rows of `kCount` tokens: those of absent tokens read as zero.
template <int kCount, typename Math>
void rows_of_head(const char* const* tokens,
                  int64_t offset,
                  const AttentionTiles<Math>& tiles,
                  const char** rows) {
  for (int i = 0; i < kCount; ++i) {
    rows[i] = tokens[i] == nullptr ? tiles.zeros : tokens[i] + offset;
  }
}

// Units [unit, unit + count) of as many keys as a vector has lanes, transposed.
template <typename Math, typename T>
static inline __attribute__((always_inline)) void pack_square(const char* const* rows,
                                                              int64_t unit,
                                                              int64_t count,
                                                              float* packed) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float square[kWidth];
  if (count == kWidth) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      square[i] = Math::load_units(reinterpret_cast<const T*>(rows[i]), unit);
    }
    Simd::transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) Simd::store(packed + i * kAttentionTileKeys, square[i]);
    return;
  }
  for (int i = 0; i < kWidth; ++i) {
    square[i] = Math::load_units(reinterpret_cast<const T*>(rows[i]), unit, count);
  }
  Simd::transpose(square);
  for (int i = 0; i < count; ++i) Simd::store(packed + i * kAttentionTileKeys, square[i]);
}

// The first `num_keys` keys of the tile, transposed.
template <typename Math, typename T>
void pack_keys(AttentionTiles<Math>& tiles,
               const char* const* tokens,
               int64_t offset,
               int64_t num_keys,
               TokenPrefetch& prefetch) {
  constexpr int kWidth = Math::Simd::kWidth;
  const char* rows[kAttentionTileKeys];
  rows_of_head<kAttentionTileKeys>(tokens, offset, tiles, rows);
  const int64_t units = tiles.head_dim / Math::kDepth;
  float* packed = reinterpret_cast<float*>(tiles.keys);
  for (int64_t group = 0; group < num_keys; group += kWidth) {
    for (int64_t unit = 0; unit < units; unit += kWidth) {
      const int64_t count = units - unit < kWidth ? units - unit : kWidth;
      prefetch.advance(kWidth * count * Math::kDepth * static_cast<int64_t>(sizeof(T)));
      pack_square<Math, T>(rows + group, unit, count, packed + unit * kAttentionTileKeys + group);
    }
  }
}

// The first `num_keys` values of the tile.
template <typename Math, typename T>
void pack_values(AttentionTiles<Math>& tiles,
                 const char* const* tokens,
                 int64_t offset,
                 int64_t num_keys,
                 TokenPrefetch& prefetch) {
  const char* rows[kAttentionTileKeys];
  rows_of_head<kAttentionTileKeys>(tokens, offset, tiles, rows);
  const int64_t row_units = tiles.padded_dim * Math::kDepth;
  for (int64_t i = 0; i < num_keys; i += Math::kDepth) {
    prefetch.advance(Math::kDepth * tiles.head_dim * static_cast<int64_t>(sizeof(T)));
    Math::template interleave<T>(
        rows + i, tiles.head_dim, tiles.values + i / Math::kDepth * row_units);
  }
}

}  // namespace atom::ops
