#include <cmath>

#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

void normalize(float* x, int64_t size, const float* weight, const float* bias, float eps) {
  float mean = 0;
  for (int64_t i = 0; i < size && bias != nullptr; ++i) mean += x[i] / static_cast<float>(size);
  float squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
  for (int64_t i = 0; i < size; ++i) {
    x[i] = (x[i] - mean) * scale * weight[i] + (bias != nullptr ? bias[i] : 0.0f);
  }
}

void rotate(const IndexerNormRopeCacheArgs& args, int64_t token, float* x) {
  const int64_t half = args.rotary_dim / 2;
  const float* cosines = args.cos_sin + args.positions[token] * args.rotary_dim;
  for (int64_t i = 0; i < half; ++i) {
    float& first = x[args.interleaved ? 2 * i : i];
    float& second = x[args.interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second, c = cosines[i], s = cosines[half + i];
    first = a * c - b * s;
    second = b * c + a * s;
  }
}

// One head from `from` to `to`, which may be the same.
template <typename T>
void prepare(const IndexerNormRopeCacheArgs& args,
             int64_t token,
             const T* from,
             const float* weight,
             const float* bias,
             T* to) {
  float x[kIndexerMaxHeadDim];
  for (int64_t i = 0; i < args.head_dim; ++i) x[i] = to_float(from[i]);
  if (weight != nullptr) normalize(x, args.head_dim, weight, bias, args.eps);
  rotate(args, token, x);
  for (int64_t i = 0; i < args.head_dim; ++i) to[i] = from_float<T>(x[i]);
}

}  // namespace

void indexer_norm_rope_cache_reference(const IndexerNormRopeCacheArgs& args,
                                       int64_t begin,
                                       int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t token = begin; token < end; ++token) {
      T* q = static_cast<T*>(args.q) + token * args.q_stride;
      for (int64_t head = 0; head < args.num_heads; ++head, q += args.head_dim) {
        prepare<T>(args, token, q, args.q_weight, nullptr, q);
      }
      if (args.slots[token] < 0) continue;
      prepare<T>(args,
                 token,
                 static_cast<const T*>(args.k) + token * args.k_stride,
                 args.k_weight,
                 args.k_bias,
                 static_cast<T*>(args.key_cache) + args.slots[token] * args.head_dim);
    }
  });
}

}  // namespace atom::ops
