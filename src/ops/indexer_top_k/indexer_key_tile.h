// Inside indexer_top_k: a block of keys as its scores read them, over a vector type.
#pragma once

#include "ops/indexer_top_k/indexer_top_k_kernels.h"

namespace atom::ops {

// Keys as columns, so that a lane is a key and every score is one sum over ascending dimensions.
template <typename Simd>
struct IndexerTile {
  static constexpr int kVectors = kIndexerScoreBlock / Simd::kWidth;
  alignas(64) float q[kIndexerMaxQuerySize];
  alignas(64) float keys[kIndexerMaxKeySize * kIndexerScoreBlock];
};

// The keys from `first` on; those behind the query's position are taken as that one.
template <typename Simd, typename T>
void load_keys(const IndexerTopKArgs& args, const PagedRow& row, int64_t first, float* keys) {
  constexpr int kWidth = Simd::kWidth;
  const T* rows[kIndexerScoreBlock];
  for (int64_t i = 0; i < kIndexerScoreBlock; ++i) {
    const int64_t key = first + i < row.position ? first + i : row.position;
    const int64_t block = row.block_table[key / args.batch.block_size];
    rows[i] = static_cast<const T*>(args.key_cache) +
              (block * args.batch.block_size + key % args.batch.block_size) * args.head_dim;
  }
  for (int64_t group = 0; group < kIndexerScoreBlock; group += kWidth) {
    for (int64_t d = 0; d < args.head_dim; d += kWidth) {
      typename Simd::Float square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) square[i] = Simd::load(rows[group + i] + d);
      Simd::transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        Simd::store(keys + (d + i) * kIndexerScoreBlock + group, square[i]);
      }
    }
  }
}

}  // namespace atom::ops
