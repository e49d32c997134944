#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/cpu/kernels.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// One query head: a running softmax over tiles of keys. `sum` and `out` are relative to
// exp(largest).
struct Row {
  float largest;
  float sum;
  std::vector<float> out;
};

// T: of q and out; C: of the cache.
template <typename T, typename C>
class Attend {
 public:
  Attend(const AttentionArgs& args, const AttentionTask& task)
      : args_(args), table_(args.block_tables + task.sequence * args.block_table_stride) {}

  void run(const T* q, int64_t position, int64_t head, T* out) {
    kv_head_ = head / (args_.num_heads / args_.num_kv_heads);
    const bool has_sink = args_.sinks != nullptr;
    const float sink = has_sink ? args_.sinks[head] : 0;
    Row row{has_sink ? sink : -INFINITY, has_sink ? 1.0f : 0.0f, {}};
    row.out.assign(args_.head_dim, 0.0f);
    const int64_t first =
        args_.sliding_window == 0 ? 0 : std::max<int64_t>(0, position - args_.sliding_window + 1);
    int64_t begin = first;
    while (begin <= position) {
      const int64_t next = (begin / kAttentionTileKeys + 1) * kAttentionTileKeys;
      const int64_t end = std::min(next, position + 1);
      add_tile(q, begin, end, row);
      begin = end;
    }
    for (int64_t d = 0; d < args_.head_dim; ++d) {
      out[d] = from_float<T>(row.out[d] / row.sum * args_.v_scale);
    }
  }

 private:
  const C* cache_row(const void* cache, int64_t key) const {
    const int64_t block = table_[key / args_.block_size];
    const int64_t slot = block * args_.block_size + key % args_.block_size;
    return static_cast<const C*>(cache) + (slot * args_.num_kv_heads + kv_head_) * args_.head_dim;
  }

  void add_tile(const T* q, int64_t begin, int64_t end, Row& row) const {
    float scores[kAttentionTileKeys];
    float largest = row.largest;
    for (int64_t key = begin; key < end; ++key) {
      const C* k = cache_row(args_.k_cache, key);
      float dot = 0;
      for (int64_t d = 0; d < args_.head_dim; ++d) dot += to_float(q[d]) * to_float(k[d]);
      scores[key - begin] = dot * (args_.scale * args_.k_scale);
      largest = std::max(largest, scores[key - begin]);
    }
    const float shrink = row.largest == largest ? 1.0f : std::exp(row.largest - largest);
    row.largest = largest;
    row.sum *= shrink;
    for (float& value : row.out) value *= shrink;
    for (int64_t key = begin; key < end; ++key) {
      const float weight = std::exp(scores[key - begin] - largest);
      const C* v = cache_row(args_.v_cache, key);
      row.sum += weight;
      for (int64_t d = 0; d < args_.head_dim; ++d) row.out[d] += weight * to_float(v[d]);
    }
  }

  const AttentionArgs& args_;
  const int32_t* table_;
  int64_t kv_head_ = 0;
};

template <typename T, typename C>
void attend_queries(const AttentionArgs& args, const AttentionTask& task) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t first_head = task.first_kv_head * group, num_heads = task.num_kv_heads * group;
  const int64_t start = args.query_start[task.sequence];
  const int64_t num_queries = args.query_start[task.sequence + 1] - start;
  const int64_t first_position = args.seq_lens[task.sequence] - num_queries;
  Attend<T, C> attend(args, task);
  for (int64_t i = 0; i < task.num_queries; ++i) {
    const int64_t query = task.first_query + i;
    for (int64_t head = first_head; head < first_head + num_heads; ++head) {
      const T* q = static_cast<const T*>(args.q) + (start + query) * args.q_token_stride +
                   head * args.q_head_stride;
      T* out = static_cast<T*>(args.out) + (start + query) * args.out_token_stride +
               head * args.out_head_stride;
      attend.run(q, first_position + query, head, out);
    }
  }
}

}  // namespace

void attention_reference(const AttentionArgs& args, const AttentionTask& task) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    if (args.float8_cache) {
      attend_queries<T, Float8E4M3>(args, task);
    } else {
      attend_queries<T, T>(args, task);
    }
  });
}

}  // namespace atom::ops
