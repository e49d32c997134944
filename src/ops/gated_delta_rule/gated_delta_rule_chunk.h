// Inside gated_delta_rule: many tokens, a chunk at a time, over a vector type.
//
// A chunk of n tokens in the WY form, with gamma_i the sum of its log decays up to token i, S the
// state before it, D_ij = exp(gamma_i - gamma_j):
//   X = diag(beta) (V - diag(exp(gamma)) K S)
//   (I + M) V' = X,        M_ij = beta_i D_ij k_i.k_j for j < i
//   O = diag(exp(gamma)) Q S + P V',   P_ij = D_ij q_i.k_j for j <= i
//   S = exp(gamma_n) S + K^T diag(exp(gamma_n - gamma)) V'
// The inverse of I + M is never formed: one substitution solves for V'.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_products.h"

namespace atom::ops {

// x = diag(beta) (V - diag(exp(gamma)) x)
template <typename Simd, typename T>
void subtract_from_values(
    const GatedDeltaRuleArgs& args, int64_t first, int64_t count, int64_t head, DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  for (int64_t i = 0; i < count; ++i) {
    const T* v = value_of<T>(args, first + i, head);
    float* x = chunk.x + i * args.head_v_dim;
    const Float beta = Simd::set(chunk.beta[i]);
    const Float decay = Simd::set(-exp2f(chunk.gamma[i]));
    for (int64_t d = 0; d < args.head_v_dim; d += Simd::kWidth) {
      const Float known = Simd::load(x + d);
      Simd::store(x + d, Simd::mul(beta, Simd::fma(decay, known, Simd::load(v + d))));
    }
  }
}

// (I + M) x' = x, in place, a tile of rows at a time: first what the rows above contribute, then
// what the tile's own do.
template <typename Simd>
void substitute(int64_t count, int64_t head_v_dim, DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  for (int64_t begin = 0; begin < count; begin += kDeltaTileRows) {
    const int64_t left = count - begin, rows = left < kDeltaTileRows ? left : kDeltaTileRows;
    float* x = chunk.x + begin * head_v_dim;
    const float* m = chunk.m + begin * kDeltaChunk;
    if (begin > 0) {
      multiply<Simd, DeltaInto::kScaled>({m, kDeltaChunk, 1},
                                         {chunk.x, head_v_dim},
                                         begin,
                                         1.0f,
                                         {x, head_v_dim},
                                         rows,
                                         head_v_dim);
    }
    for (int64_t d = 0; d < head_v_dim; d += Simd::kWidth) {
      for (int64_t i = 1; i < rows; ++i) {
        Float sum = Simd::load(x + i * head_v_dim + d);
        for (int64_t j = 0; j < i; ++j) {
          const Float factor = Simd::set(m[i * kDeltaChunk + begin + j]);
          sum = Simd::fma(factor, Simd::load(x + j * head_v_dim + d), sum);
        }
        Simd::store(x + i * head_v_dim + d, sum);
      }
    }
  }
}

template <typename Simd>
void scale_rows(float* rows, int64_t count, int64_t size, const float* factors) {
  for (int64_t i = 0; i < count; ++i) {
    const typename Simd::Float factor = Simd::set(factors[i]);
    for (int64_t d = 0; d < size; d += Simd::kWidth) {
      Simd::store(rows + i * size + d, Simd::mul(factor, Simd::load(rows + i * size + d)));
    }
  }
}

// One chunk of one value head, after begin_chunk().
template <typename Simd, typename T>
void advance_by_chunk(const GatedDeltaRuleArgs& args,
                      int64_t first,
                      int64_t count,
                      int64_t head,
                      float* state,
                      DeltaChunk& chunk) {
  const int64_t dk = args.head_k_dim, dv = args.head_v_dim;
  load_gates<Simd, T>(args, first, count, head, chunk);
  weigh_products<Simd>(count, chunk);
  const DeltaRows s{state, dv}, x{chunk.x, dv}, out{chunk.out, dv};
  multiply<Simd, DeltaInto::kOverwritten>({chunk.k, dk, 1}, s, dk, 0, x, count, dv);
  subtract_from_values<Simd, T>(args, first, count, head, chunk);
  substitute<Simd>(count, dv, chunk);

  float factors[kDeltaChunk];
  for (int64_t i = 0; i < count; ++i) factors[i] = exp2f(chunk.gamma[i]);
  multiply<Simd, DeltaInto::kOverwritten>({chunk.q, dk, 1}, s, dk, 0, out, count, dv);
  scale_rows<Simd>(chunk.out, count, dv, factors);
  multiply<Simd, DeltaInto::kScaled>(
      {chunk.p, kDeltaChunk, 1}, x, count, 1.0f, out, count, dv, true);
  for (int64_t i = 0; i < count; ++i) {
    T* row = out_of<T>(args, first + i, head);
    for (int64_t d = 0; d < dv; d += Simd::kWidth) {
      Simd::store(row + d, Simd::load(chunk.out + i * dv + d));
    }
  }

  for (int64_t i = 0; i < count; ++i) factors[i] = decay_between(chunk, count - 1, i);
  scale_rows<Simd>(chunk.x, count, dv, factors);
  multiply<Simd, DeltaInto::kScaled>(
      {chunk.k_t, kDeltaChunk, 1}, x, count, exp2f(chunk.gamma[count - 1]), s, dk, dv);
}

}  // namespace atom::ops
