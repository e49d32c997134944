#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/mla_attention/mla_attention_kernels.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

template <typename C>
std::vector<const C*> visible_rows(const MlaAttentionArgs& args,
                                   int64_t token,
                                   const PagedRow& row) {
  std::vector<const C*> rows;
  for (int64_t i = 0; i < mla_most_keys(args, row); ++i) {
    const int64_t position = args.indices == nullptr ? i : args.indices[token * args.top_k + i];
    if (position < 0) break;
    const int64_t block = row.block_table[position / args.batch.block_size];
    const int64_t slot = block * args.batch.block_size + position % args.batch.block_size;
    rows.push_back(static_cast<const C*>(args.cache) + slot * args.width);
  }
  return rows;
}

template <typename T, typename C>
void attend(const MlaAttentionArgs& args,
            int64_t token,
            const PagedRow& row,
            int64_t first_head,
            int64_t num_heads) {
  const std::vector<const C*> rows = visible_rows<C>(args, token, row);
  std::vector<float> weights(rows.size()), sums(args.rank);
  for (int64_t head = first_head; head < first_head + num_heads; ++head) {
    const T* latent = static_cast<const T*>(args.q_latent) + token * args.q_latent_strides[0] +
                      head * args.q_latent_strides[1];
    const T* rope = static_cast<const T*>(args.q_rope) + token * args.q_rope_strides[0] +
                    head * args.q_rope_strides[1];
    T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
    for (size_t i = 0; i < rows.size(); ++i) {
      float product = 0;
      for (int64_t d = 0; d < args.rank; ++d) product += to_float(latent[d]) * to_float(rows[i][d]);
      for (int64_t d = args.rank; d < args.width; ++d) {
        product += to_float(rope[d - args.rank]) * to_float(rows[i][d]);
      }
      weights[i] = product * args.scale;
    }
    const float largest = rows.empty() ? 0.0f : *std::max_element(weights.begin(), weights.end());
    float total = 0;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float weight = std::exp(weights[i] - largest);
      total += weight;
      for (int64_t d = 0; d < args.rank; ++d) sums[d] += weight * to_float(rows[i][d]);
    }
    const float factor = rows.empty() ? 0.0f : 1.0f / total;
    for (int64_t d = 0; d < args.rank; ++d) out[d] = from_float<T>(sums[d] * factor);
  }
}

}  // namespace

void mla_attention_reference(const MlaAttentionArgs& args,
                             int64_t token,
                             const PagedRow& row,
                             int64_t first_head,
                             int64_t num_heads) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    if (args.float8_cache) {
      attend<T, Float8E4M3>(args, token, row, first_head, num_heads);
    } else {
      attend<T, T>(args, token, row, first_head, num_heads);
    }
  });
}

}  // namespace atom::ops
