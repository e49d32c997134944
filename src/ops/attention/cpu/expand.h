// Inside attention: tiles of a cache in FP8, expanded to the dtype of the queries, so that what
// follows reads them like any other cache. The scales are left to the scores and the result.
#pragma once

#include <stdint.h>

#include "ops/attention/cpu/pack.h"

namespace atom::ops {

// The heads of a task for the tokens of one tile. Token i has its heads side by side.
template <typename T>
struct ExpandedTile {
  // A task has 2048 bytes of a token at most, or one head (kv_heads_per_task in attention.cc).
  static constexpr int64_t kMaxTokenElements = 1024;

  alignas(64) T keys[kAttentionTileKeys * kMaxTokenElements];
  alignas(64) T values[kAttentionTileKeys * kMaxTokenElements];
};

template <typename Simd, typename T>
void expand_row(const Float8Bits* from, int64_t size, T* to) {
  constexpr int kWidth = Simd::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth) Simd::store(to + i, Simd::load(from + i));
  if (i < size) Simd::store(to + i, size - i, Simd::load(from + i, size - i));
}

// Expands what `tokens` points to and makes it point there, as if `first_kv_head` of the task were
// head 0 of the cache.
template <typename Simd, typename T>
void expand_tile(const AttentionArgs& args,
                 const AttentionTask& task,
                 AttentionTokens& tokens,
                 ExpandedTile<T>& expanded) {
  const int64_t size = task.num_kv_heads * args.head_dim;
  const int64_t offset = task.first_kv_head * args.head_dim;
  for (int64_t i = 0; i < kAttentionTileKeys; ++i) {
    if (tokens.keys[i] == nullptr) continue;
    T* key = expanded.keys + i * size;
    T* value = expanded.values + i * size;
    expand_row<Simd>(reinterpret_cast<const Float8Bits*>(tokens.keys[i]) + offset, size, key);
    expand_row<Simd>(reinterpret_cast<const Float8Bits*>(tokens.values[i]) + offset, size, value);
    tokens.keys[i] = reinterpret_cast<const char*>(key);
    tokens.values[i] = reinterpret_cast<const char*>(value);
  }
}

}  // namespace atom::ops
