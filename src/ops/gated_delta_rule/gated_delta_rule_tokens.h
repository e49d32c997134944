// Inside gated_delta_rule: few tokens, one after the other, over a vector type.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_rows.h"

namespace atom::ops {

// Few tokens of one value head, kV vectors of columns, which do not depend on the others. The
// result is exp(g) S^T q + (k.q) u, so that S is read once for both products. The state begins in
// `from` and ends in `to`, which may be the same.
template <typename Simd, typename T, int kV>
void advance_columns(const GatedDeltaRuleArgs& args,
                     int64_t first,
                     int64_t count,
                     int64_t head,
                     int64_t column,
                     const float* from,
                     float* to,
                     const DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  const int64_t dk = args.head_k_dim, dv = args.head_v_dim;
  for (int64_t i = 0; i < count; ++i, from = to) {
    const float* q = chunk.q + i * dk;
    const float* k = chunk.k + i * dk;
    const Float decay = Simd::set(chunk.decay[i]), beta = Simd::set(chunk.beta[i]);
    Float known[kV], update[kV], result[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) known[v] = result[v] = Simd::zero();
    for (int64_t d = 0; d < dk; ++d) {
      const Float key = Simd::set(k[d]), query = Simd::set(q[d]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) {
        const Float s = Simd::load(from + d * dv + column + v * kWidth);
        known[v] = Simd::fma(key, s, known[v]);
        result[v] = Simd::fma(query, s, result[v]);
      }
    }
    const Float product = Simd::set(chunk.qk[i]);
    const T* value = value_of<T>(args, first + i, head) + column;
    T* out = out_of<T>(args, first + i, head) + column;
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      const Float kept = Simd::mul(decay, known[v]);
      update[v] = Simd::mul(beta, Simd::sub(Simd::load(value + v * kWidth), kept));
      Simd::store(out + v * kWidth, Simd::fma(product, update[v], Simd::mul(decay, result[v])));
    }
    for (int64_t d = 0; d < dk; ++d) {
      const Float key = Simd::set(k[d]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) {
        const int64_t at = d * dv + column + v * kWidth;
        Simd::store(to + at, Simd::fma(key, update[v], Simd::mul(decay, Simd::load(from + at))));
      }
    }
  }
}

// Few tokens of one value head, after normalize_tokens().
template <typename Simd, typename T>
void advance_one_by_one(const GatedDeltaRuleArgs& args,
                        int64_t first,
                        int64_t count,
                        int64_t head,
                        const float* from,
                        float* to,
                        DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  for (int64_t i = 0; i < count; ++i) {
    const float a = scalar<Simd, T>(args.a, (first + i) * args.a_stride + head);
    chunk.decay[i] = expf(log_decay(a, args.a_log[head], args.dt_bias[head]));
    chunk.beta[i] = write_strength(scalar<Simd, T>(args.b, (first + i) * args.b_stride + head));
    Float sum = Simd::zero();
    for (int64_t d = 0; d < args.head_k_dim; d += kWidth) {
      sum = Simd::fma(Simd::load(chunk.q + i * args.head_k_dim + d),
                      Simd::load(chunk.k + i * args.head_k_dim + d),
                      sum);
    }
    chunk.qk[i] = Simd::sum(sum);
  }
  int64_t column = 0;
  for (; column + 4 * kWidth <= args.head_v_dim; column += 4 * kWidth) {
    advance_columns<Simd, T, 4>(args, first, count, head, column, from, to, chunk);
  }
  for (; column < args.head_v_dim; column += kWidth) {
    advance_columns<Simd, T, 1>(args, first, count, head, column, from, to, chunk);
  }
}

}  // namespace atom::ops
