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

#include "ops/gated_delta_rule/gated_delta_rule_matrix.h"
#include "ops/gated_delta_rule/gated_delta_rule_rows.h"

namespace atom::ops {

// k_t; columns of tokens that are not there become 0.
template <typename Simd>
void transpose_keys(int64_t count, int64_t head_k_dim, DeltaChunk& chunk) {
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float square[kWidth];
  for (int64_t token = 0; token < kDeltaChunk; token += kWidth) {
    for (int64_t d = 0; d < head_k_dim; d += kWidth) {
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        square[i] =
            token + i < count ? Simd::load(chunk.k + (token + i) * head_k_dim + d) : Simd::zero();
      }
      Simd::transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        Simd::store(chunk.k_t + (d + i) * kDeltaChunk + token, square[i]);
      }
    }
  }
}

// What the value heads of a key head share.
template <typename Simd, typename T>
void begin_chunk(const GatedDeltaRuleArgs& args,
                 int64_t first,
                 int64_t count,
                 int64_t key_head,
                 DeltaChunk& chunk) {
  const int64_t dk = args.head_k_dim;
  normalize_tokens<Simd, T>(args, first, count, key_head, chunk);
  transpose_keys<Simd>(count, dk, chunk);
  const DeltaRows keys{chunk.k_t, kDeltaChunk};
  const int64_t columns = (count + Simd::kWidth - 1) / Simd::kWidth * Simd::kWidth;
  multiply<Simd, DeltaInto::kOverwritten>(
      {chunk.k, dk, 1}, keys, dk, 0, {chunk.kk, kDeltaChunk}, count, columns);
  multiply<Simd, DeltaInto::kOverwritten>(
      {chunk.q, dk, 1}, keys, dk, 0, {chunk.qk, kDeltaChunk}, count, columns);
}

template <typename Simd, typename T>
void load_gates(
    const GatedDeltaRuleArgs& args, int64_t first, int64_t count, int64_t head, DeltaChunk& chunk) {
  constexpr double kLog2E = 1.4426950408889634;
  double gamma = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float a = scalar<Simd, T>(args.a, (first + i) * args.a_stride + head);
    const float b = scalar<Simd, T>(args.b, (first + i) * args.b_stride + head);
    gamma += kLog2E * log_decay(a, args.a_log[head], args.dt_bias[head]);
    chunk.gamma[i] = static_cast<float>(gamma);
    chunk.gamma_rest[i] = static_cast<float>(gamma - chunk.gamma[i]);
    chunk.beta[i] = write_strength(b);
  }
  for (int64_t i = count; i < kDeltaChunk; ++i) chunk.gamma[i] = chunk.gamma_rest[i] = 0;
}

// exp(gamma_i - gamma_j)
static inline float decay_between(const DeltaChunk& chunk, int64_t i, int64_t j) {
  return exp2f((chunk.gamma[i] - chunk.gamma[j]) + (chunk.gamma_rest[i] - chunk.gamma_rest[j]));
}

// -M and P, zero above their diagonals as far as whole vectors and tiles go.
template <typename Simd>
void weigh_products(int64_t count, DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  for (int64_t i = 0; i < count; ++i) {
    const Float gamma = Simd::set(chunk.gamma[i]), rest = Simd::set(chunk.gamma_rest[i]);
    const Float minus_beta = Simd::set(-chunk.beta[i]);
    const int64_t row = i * kDeltaChunk;
    for (int64_t j = 0; j < kDeltaChunk; j += kWidth) {
      if (j > i) {
        Simd::store(chunk.m + row + j, Simd::zero());
        Simd::store(chunk.p + row + j, Simd::zero());
        continue;
      }
      const Float decay = Simd::exp2(Simd::add(Simd::sub(gamma, Simd::load(chunk.gamma + j)),
                                               Simd::sub(rest, Simd::load(chunk.gamma_rest + j))));
      const Float m = Simd::mul(minus_beta, Simd::mul(Simd::load(chunk.kk + row + j), decay));
      const Float p = Simd::mul(Simd::load(chunk.qk + row + j), decay);
      Simd::store(chunk.m + row + j, Simd::keep(m, 0, i - j, Simd::zero()));
      Simd::store(chunk.p + row + j, Simd::keep(p, 0, i - j + 1, Simd::zero()));
    }
  }
}

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
