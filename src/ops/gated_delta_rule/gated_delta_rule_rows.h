// Inside gated_delta_rule: what one task works with and where its tokens are, over a vector type.
// Files of several instruction sets include it: everything has internal linkage, by `Simd` or by
// itself.
#pragma once

#include <math.h>

#include "ops/gated_delta_rule/gated_delta_rule_gates.h"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

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

}  // namespace atom::ops
