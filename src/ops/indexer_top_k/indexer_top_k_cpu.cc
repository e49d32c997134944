#include <bit>

#include "ops/indexer_top_k/indexer_top_k_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

// Ascends as the score does; -0 is 0, and NaN is less than all else.
uint32_t rank_of(float score) {
  if (score != score) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

float weight_of(const IndexerTopKArgs& args, int64_t token, int64_t head) {
  float weight = 0;
  dispatch_float(static_cast<DType>(args.weight_element), [&]<typename T>(TypeTag<T>) {
    weight = to_float(static_cast<const T*>(args.weights)[token * args.weights_stride + head]);
  });
  return weight;
}

template <typename T>
void score_row(const IndexerTopKArgs& args, int64_t token, const PagedRow& row, float* scores) {
  const int64_t block_size = args.batch.block_size;
  const T* queries = static_cast<const T*>(args.q) + token * args.q_stride;
  for (int64_t key = 0; key <= row.position; ++key) {
    const int64_t slot = row.block_table[key / block_size] * block_size + key % block_size;
    const T* k = static_cast<const T*>(args.key_cache) + slot * args.head_dim;
    float sum = 0;
    for (int64_t head = 0; head < args.num_heads; ++head) {
      const T* q = queries + head * args.head_dim;
      float product = 0;
      for (int64_t d = 0; d < args.head_dim; ++d) product += to_float(q[d]) * to_float(k[d]);
      // Not max(): a NaN stays.
      if (args.activation == IndexerActivation::kRelu && product < 0) product = 0;
      sum += weight_of(args, token, head) * product;
    }
    scores[key] = args.scale * sum;
  }
}

}  // namespace

void indexer_scores_reference(const IndexerTopKArgs& args,
                              int64_t token,
                              const PagedRow& row,
                              float* scores) {
  dispatch_float(static_cast<DType>(args.element),
                 [&]<typename T>(TypeTag<T>) { score_row<T>(args, token, row, scores); });
}

void select_top_k(const float* scores, int64_t count, int64_t top_k, int32_t* indices) {
  // The rank of the last one selected, a byte at a time from the highest: how many of the
  // candidates, whose upper bytes are the threshold's, have which next byte.
  uint32_t threshold = 0;
  int64_t wanted = top_k;  // of the candidates
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t counts[256] = {};
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t rank = rank_of(scores[i]);
      if (shift == 24 || rank >> (shift + 8) == threshold >> (shift + 8)) {
        ++counts[(rank >> shift) & 0xff];
      }
    }
    uint32_t byte = 255;
    while (wanted > counts[byte]) wanted -= counts[byte--];
    threshold |= byte << shift;
  }
  int64_t num_selected = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    if (rank < threshold || (rank == threshold && wanted-- <= 0)) continue;
    indices[num_selected++] = static_cast<int32_t>(i);
  }
}

}  // namespace atom::ops
