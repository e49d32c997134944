// Inside gated_delta_rule: what a chunk of tokens (gated_delta_rule_chunk.h) needs before it meets
// the state: its normalized queries and keys, their products, and the decays between its tokens.
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

}  // namespace atom::ops
