#include "attention_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "attention_timing.h"

namespace atom::bench {
namespace {

using ops::AttentionArgs;

}  // namespace

double AttentionBatchShape::bytes() const {
  double tokens = 0;
  for (const int32_t len : seq_lens) {
    const int32_t visible = sliding_window > 0 ? sliding_window + num_queries - 1 : len;
    tokens += std::min(len, visible);
  }
  return 2 * tokens * num_kv_heads * head_dim * (fp8 ? 1 : 2);
}

AttentionBatchShape equal_sequences(int num_sequences, int seq_len, bool fp8) {
  AttentionBatchShape shape;
  shape.seq_lens.assign(num_sequences, seq_len);
  shape.fp8 = fp8;
  return shape;
}

AttentionBatch::AttentionBatch(const AttentionBatchShape& shape, int num_copies)
    : num_copies_(num_copies) {
  const int num_sequences = static_cast<int>(shape.seq_lens.size());
  int width = shape.table_width;
  int num_blocks = 0;
  for (int len : shape.seq_lens) {
    width = std::max(width, (len + shape.block_size - 1) / shape.block_size);
    num_blocks += num_copies * ((len + shape.block_size - 1) / shape.block_size);
  }
  const size_t cache_bytes = size_t{1} * num_blocks * shape.block_size * shape.num_kv_heads *
                             shape.head_dim * (shape.fp8 ? 1 : 2);
  const size_t q_size =
      size_t{1} * num_sequences * shape.num_queries * shape.num_heads * shape.head_dim;
  k_ = DeviceBuffer(cache_bytes);
  v_ = DeviceBuffer(cache_bytes);
  q_ = DeviceBuffer(q_size * 2);
  out_ = DeviceBuffer(q_size * 2);
  fill_random(k_.get(), cache_bytes, shape.fp8, 1);
  fill_random(v_.get(), cache_bytes, shape.fp8, 2);
  fill_random(q_.get(), q_size * 2, false, 3);
  upload_tables(shape, width, num_blocks);
  std::vector<int32_t> starts;
  for (int s = 0; s <= num_sequences; ++s) {
    starts.push_back(s * shape.num_queries);
  }
  starts_ = upload(starts);
  lens_ = upload(shape.seq_lens);
  std::vector<int32_t> settled_lens = shape.seq_lens;
  for (int32_t& len : settled_lens) {
    len = std::max(len - shape.num_queries, 0);
  }
  settled_lens_ = upload(settled_lens);
  if (shape.has_sinks) {
    sinks_ = upload(std::vector<float>(shape.num_heads, 0.5f));
  }
  set_params(shape, width, num_blocks);
}

void AttentionBatch::upload_tables(const AttentionBatchShape& shape, int width, int num_blocks) {
  std::vector<int32_t> blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
  std::vector<int32_t> tables(size_t{1} * num_copies_ * shape.seq_lens.size() * width, -1);
  auto row = tables.begin();
  auto next = blocks.begin();
  for (int copy = 0; copy < num_copies_; ++copy) {
    for (int len : shape.seq_lens) {
      const int count = (len + shape.block_size - 1) / shape.block_size;
      std::copy_n(next, count, row);
      next += count;
      row += width;
    }
  }
  tables_ = upload(tables);
}

void AttentionBatch::set_params(const AttentionBatchShape& shape, int width, int num_blocks) {
  params_ = {};
  params_.q = q_.get();
  params_.k_cache = k_.get();
  params_.v_cache = v_.get();
  params_.query_start = static_cast<const int32_t*>(starts_.get());
  params_.seq_lens = static_cast<const int32_t*>(lens_.get());
  params_.settled_lens = static_cast<const int32_t*>(settled_lens_.get());
  params_.out = out_.get();
  params_.q_token_stride = params_.out_token_stride = shape.num_heads * shape.head_dim;
  params_.q_head_stride = params_.out_head_stride = shape.head_dim;
  params_.block_table_stride = width;
  params_.num_sequences = static_cast<int32_t>(shape.seq_lens.size());
  params_.num_tokens = params_.num_sequences * shape.num_queries;
  params_.num_blocks = num_blocks;
  params_.block_size = shape.block_size;
  params_.num_heads = shape.num_heads;
  params_.num_kv_heads = shape.num_kv_heads;
  params_.head_dim = shape.head_dim;
  params_.max_seq_len = width * shape.block_size;
  params_.sliding_window = shape.sliding_window;
  params_.sinks = static_cast<const float*>(sinks_.get());
  params_.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  params_.k_scale = params_.v_scale = 1;
  params_.element = Element::kBFloat16;
  params_.float8_cache = shape.fp8;
}

AttentionArgs AttentionBatch::params(int i) const {
  AttentionArgs params = params_;
  params.block_tables = static_cast<const int32_t*>(tables_.get()) +
                        i % num_copies_ * params.block_table_stride * params.num_sequences;
  return params;
}

int copies_beyond_caches(const AttentionBatchShape& shape) {
  constexpr double kMiB = 1 << 20, kMostMiB = 16 << 10;
  AttentionBatchShape whole = shape;
  whole.sliding_window = 0;
  const double copies = std::min(400 / (shape.bytes() / kMiB), kMostMiB / (whole.bytes() / kMiB));
  return std::clamp(static_cast<int>(copies), 1, 64);
}

}  // namespace atom::bench
