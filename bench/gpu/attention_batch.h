// Batches that attention is timed on: random queries, keys and values over a shuffled cache.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_case.h"
#include "ops/attention/device/visible_keys.h"

namespace atom::bench {

struct AttentionBatchShape {
  std::vector<int32_t> seq_lens;
  int num_queries = 1;  // of each sequence
  int head_dim = 128;
  int num_heads = 32;
  int num_kv_heads = 8;
  int block_size = 16;
  bool fp8 = false;        // the cache
  int table_width = 0;     // 0: as wide as the longest sequence needs
  int sliding_window = 0;  // 0: none
  bool has_sinks = false;

  // Of keys and values that one launch has to read.
  double bytes() const;
};

// 32 query heads, 8 of keys and values.
AttentionBatchShape equal_sequences(int num_sequences, int seq_len, bool fp8);

// The batch several times, in different blocks of the cache. All elements are bfloat16, but the
// cache's where it is FP8.
class AttentionBatch {
 public:
  AttentionBatch(const AttentionBatchShape& shape, int num_copies);

  // Launch i reads other blocks than the ones before it.
  ops::AttentionArgs params(int i) const;

 private:
  void upload_tables(const AttentionBatchShape& shape, int width, int num_blocks);
  void set_params(const AttentionBatchShape& shape, int width, int num_blocks);

  int num_copies_;
  ops::AttentionArgs params_;
  DeviceBuffer k_, v_, q_, out_, tables_, starts_, lens_, settled_lens_, sinks_;
};

// As many copies of a batch as no cache holds.
int copies_beyond_caches(const AttentionBatchShape& shape);

}  // namespace atom::bench
