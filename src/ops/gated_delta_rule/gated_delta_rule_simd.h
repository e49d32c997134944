// Inside gated_delta_rule: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
//
// A chunk of n tokens in the WY form, with gamma_i the sum of its log decays up to token i, S the
// state before it, D_ij = exp(gamma_i - gamma_j):
//   X = diag(beta) (V - diag(exp(gamma)) K S)
//   (I + M) V' = X,        M_ij = beta_i D_ij k_i.k_j for j < i
//   O = diag(exp(gamma)) Q S + P V',   P_ij = D_ij q_i.k_j for j <= i
//   S = exp(gamma_n) S + K^T diag(exp(gamma_n - gamma)) V'
// The inverse of I + M is never formed: one substitution solves for V'.
#pragma once

#include <math.h>
#include <string.h>

#include "ops/gated_delta_rule/gated_delta_rule_gates.h"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"
#include "ops/gated_delta_rule/gated_delta_rule_matrix.h"

namespace atom::ops {

// What one task works with, on its stack. Rows of q, k, x and out are tokens.
struct DeltaChunk {
  static constexpr int kN = kDeltaChunk, kDim = kDeltaMaxHeadDim;
  alignas(64) float q[kN * kDim];    // scaled to unit length, then by 1 / sqrt(head_k_dim)
  alignas(64) float k[kN * kDim];    // scaled to unit length
  alignas(64) float k_t[kDim * kN];  // the same, a row per dimension
  alignas(64) float x[kN * kDim];
  alignas(64) float out[kN * kDim];
  alignas(64) float kk[kN * kN];  // k_i.k_j
  alignas(64) float qk[kN * kN];  // q_i.k_j
  alignas(64) float m[kN * kN];   // -M
  alignas(64) float p[kN * kN];
  // gamma in units of log 2, as a sum of two floats: differences of neighbors stay exact although
  // gamma itself may be in the thousands.
  alignas(64) float gamma[kN];
  alignas(64) float gamma_rest[kN];
  float beta[kN];
  float decay[kN];  // exp(g), of tokens that are computed one after the other
};

// Where a token's heads are.
template <typename T>
static inline const T* query_of(const GatedDeltaRuleArgs& args, int64_t token, int64_t key_head) {
  return static_cast<const T*>(args.qkv) + token * args.qkv_stride + key_head * args.head_k_dim;
}
template <typename T>
static inline const T* key_of(const GatedDeltaRuleArgs& args, int64_t token, int64_t key_head) {
  return query_of<T>(args, token, args.num_k_heads + key_head);
}
template <typename T>
static inline const T* value_of(const GatedDeltaRuleArgs& args, int64_t token, int64_t head) {
  return query_of<T>(args, token, 2 * args.num_k_heads) + head * args.head_v_dim;
}
template <typename T>
static inline T* out_of(const GatedDeltaRuleArgs& args, int64_t token, int64_t head) {
  return static_cast<T*>(args.out) + token * args.out_stride + head * args.head_v_dim;
}

template <typename Simd, typename T>
float scalar(const void* data, int64_t index) {
  return Simd::sum(Simd::load(static_cast<const T*>(data) + index, 1));
}

template <typename Simd, typename T>
void normalize_row(const T* x, int64_t size, float scale, float* out) {
  using Float = typename Simd::Float;
  Float squares = Simd::zero();
  for (int64_t i = 0; i < size; i += Simd::kWidth) {
    const Float value = Simd::load(x + i);
    squares = Simd::fma(value, value, squares);
  }
  const Float factor = Simd::set(scale / sqrtf(Simd::sum(squares) + 1e-6f));
  for (int64_t i = 0; i < size; i += Simd::kWidth) {
    Simd::store(out + i, Simd::mul(Simd::load(x + i), factor));
  }
}

template <typename Simd, typename T>
void normalize_tokens(const GatedDeltaRuleArgs& args,
                      int64_t first,
                      int64_t count,
                      int64_t key_head,
                      DeltaChunk& chunk) {
  const int64_t dk = args.head_k_dim;
  const float q_scale = 1.0f / sqrtf(static_cast<float>(dk));
  for (int64_t i = 0; i < count; ++i) {
    const T* q = query_of<T>(args, first + i, key_head);
    const T* k = key_of<T>(args, first + i, key_head);
    normalize_row<Simd>(q, dk, q_scale, chunk.q + i * dk);
    normalize_row<Simd>(k, dk, 1.0f, chunk.k + i * dk);
  }
}

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

// Few tokens of one value head, kV vectors of columns, which do not depend on the others. The
// result is exp(g) S^T q + (k.q) u, so that S is read once for both products.
template <typename Simd, typename T, int kV>
void advance_columns(const GatedDeltaRuleArgs& args,
                     int64_t first,
                     int64_t count,
                     int64_t head,
                     int64_t column,
                     float* state,
                     const DeltaChunk& chunk) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  const int64_t dk = args.head_k_dim, dv = args.head_v_dim;
  for (int64_t i = 0; i < count; ++i) {
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
        const Float s = Simd::load(state + d * dv + column + v * kWidth);
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
        float* s = state + d * dv + column + v * kWidth;
        Simd::store(s, Simd::fma(key, update[v], Simd::mul(decay, Simd::load(s))));
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
                        float* state,
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
    advance_columns<Simd, T, 4>(args, first, count, head, column, state, chunk);
  }
  for (; column < args.head_v_dim; column += kWidth) {
    advance_columns<Simd, T, 1>(args, first, count, head, column, state, chunk);
  }
}

template <typename Simd, typename T>
void advance_tokens(const GatedDeltaRuleArgs& args,
                    const GatedDeltaRuleTask& task,
                    int64_t begin,
                    int64_t end,
                    int64_t slot) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const int64_t key_head = task.first_v_head / (args.num_v_heads / args.num_k_heads);
  float* states = args.state + (slot * args.num_v_heads + task.first_v_head) * state_size;
  if (args.batch.seq_lens[task.sequence] == end - begin) {
    memset(states, 0, task.num_v_heads * state_size * sizeof(float));
  }
  DeltaChunk chunk;
  for (int64_t first = begin; first < end; first += kDeltaChunk) {
    const int64_t count = end - first < kDeltaChunk ? end - first : kDeltaChunk;
    const bool few = count < kDeltaChunkMinTokens;
    if (few) {
      normalize_tokens<Simd, T>(args, first, count, key_head, chunk);
    } else {
      begin_chunk<Simd, T>(args, first, count, key_head, chunk);
    }
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      float* state = states + i * state_size;
      const int64_t head = task.first_v_head + i;
      if (few) {
        advance_one_by_one<Simd, T>(args, first, count, head, state, chunk);
      } else {
        advance_by_chunk<Simd, T>(args, first, count, head, state, chunk);
      }
    }
  }
}

template <typename Simd, typename T>
void gated_delta_rule_of(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  const int64_t begin = args.batch.query_start[task.sequence];
  const int64_t end = args.batch.query_start[task.sequence + 1];
  const int64_t slot = args.batch.state_slots[task.sequence];
  if (begin == end) return;
  if (slot >= 0) return advance_tokens<Simd, T>(args, task, begin, end, slot);
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      memset(out_of<T>(args, token, task.first_v_head + i), 0, args.head_v_dim * sizeof(T));
    }
  }
}

template <typename Simd>
void gated_delta_rule_task(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  switch (args.element) {
    case Element::kFloat32:
      return gated_delta_rule_of<Simd, float>(args, task);
    case Element::kFloat16:
      return gated_delta_rule_of<Simd, Float16Bits>(args, task);
    case Element::kBFloat16:
      return gated_delta_rule_of<Simd, BFloat16Bits>(args, task);
  }
}

}  // namespace atom::ops
