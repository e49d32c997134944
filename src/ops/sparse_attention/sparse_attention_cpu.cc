#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/sparse_attention/sparse_attention_kernels.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// The cache's rows of the selected tokens.
template <typename C>
std::vector<const C*> selected_rows(const SparseAttentionArgs& args,
                                    const void* cache,
                                    int64_t token,
                                    const PagedRow& row,
                                    int64_t kv_head) {
  const int64_t block_size = args.batch.block_size;
  const int32_t* indices = args.indices + token * args.top_k;
  std::vector<const C*> rows;
  for (int64_t i = 0; i < args.top_k && indices[i] != -1; ++i) {
    const int64_t block = row.block_table[indices[i] / block_size];
    const int64_t slot = block * block_size + indices[i] % block_size;
    rows.push_back(static_cast<const C*>(cache) +
                   (slot * args.num_kv_heads + kv_head) * args.head_dim);
  }
  return rows;
}

template <typename T, typename C>
void attend(const SparseAttentionArgs& args, int64_t token, const PagedRow& row, int64_t kv_head) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const auto keys = selected_rows<C>(args, args.k_cache, token, row, kv_head);
  const auto values = selected_rows<C>(args, args.v_cache, token, row, kv_head);
  std::vector<float> weights(keys.size()), sums(args.head_dim);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* q =
        static_cast<const T*>(args.q) + token * args.q_strides[0] + head * args.q_strides[1];
    T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
    for (size_t i = 0; i < keys.size(); ++i) {
      float product = 0;
      for (int64_t d = 0; d < args.head_dim; ++d) product += to_float(q[d]) * to_float(keys[i][d]);
      weights[i] = product * args.scale;
    }
    const float largest =
        weights.empty() ? 0.0f : *std::max_element(weights.begin(), weights.end());
    float total = 0;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float weight = std::exp(weights[i] - largest);
      total += weight;
      for (int64_t d = 0; d < args.head_dim; ++d) sums[d] += weight * to_float(values[i][d]);
    }
    const float factor = keys.empty() ? 0.0f : args.v_scale / total;
    for (int64_t d = 0; d < args.head_dim; ++d) out[d] = from_float<T>(sums[d] * factor);
  }
}

}  // namespace

void sparse_attention_reference(const SparseAttentionArgs& args,
                                int64_t token,
                                const PagedRow& row,
                                int64_t kv_head) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    if (args.float8_cache) {
      attend<T, Float8E4M3>(args, token, row, kv_head);
    } else {
      attend<T, T>(args, token, row, kv_head);
    }
  });
}

}  // namespace atom::ops
