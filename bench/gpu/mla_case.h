// Random problems of latent attention on the device, with a float64 reference of single rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness.h"
#include "ops/mla_attention/mla_attention_kernels.h"

namespace atom::bench {

struct MlaShape {
  std::string name;
  int num_heads = 128;
  int block_size = 64;
  bool float8 = false;
  int top_k = 0;  // 0: every position
  // Of each sequence: queries in this step, and tokens in the cache with them.
  std::vector<int> num_queries;
  std::vector<int> seq_lens;

  int64_t num_tokens() const;
  // Keys that the queries see, and rows of the cache that are read for them at least once.
  int64_t num_visible() const;
  int64_t num_rows() const;
  double flops() const;
  int64_t bytes() const;
};

// `count` sequences alike.
MlaShape equal_sequences(const char* name, int count, int queries, int seq_len);

// A step's tensors. Slots that no token has written hold NaN; block tables are shuffled.
class MlaProblem {
 public:
  // With `sets` caches of different contents, which calls take turns with.
  MlaProblem(const MlaShape& shape, int sets, uint64_t seed);

  ops::MlaAttentionArgs args(int set = 0) const;
  void poison();
  std::vector<uint16_t> out() const;
  // Of one token's head.
  std::vector<double> expected(int64_t token, int head) const;
  const MlaShape& shape() const { return shape_; }

 private:
  void make_batch(uint64_t seed);
  void make_cache(int sets, uint64_t seed);
  void make_indices(uint64_t seed);

  MlaShape shape_;
  int64_t num_blocks_ = 0;
  int64_t max_blocks_ = 0;
  std::vector<int32_t> query_start_, tables_, indices_;
  Buffer q_latent_, q_rope_, out_;
  std::vector<std::unique_ptr<Buffer>> caches_;
  std::unique_ptr<Buffer> device_tables_, device_starts_, device_lens_, device_indices_;
};

}  // namespace atom::bench
