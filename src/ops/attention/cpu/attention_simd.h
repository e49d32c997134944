// Inside attention: the tiled kernel over a kind of arithmetic, which the file of each instruction
// set includes. The template arguments have internal linkage, and so has every instance.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ops/attention/cpu/attend_tile.h"
#include "ops/attention/cpu/direct.h"
#include "ops/attention/cpu/pack.h"
#include "ops/attention/cpu/rows.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

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

}  // namespace atom::ops
