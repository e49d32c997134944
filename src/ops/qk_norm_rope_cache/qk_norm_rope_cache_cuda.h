// One pass over the packed projections of a step on a GPU: RMSNorm of the heads of queries and keys
// (Qwen3; or none), rotary embedding, and the keys and values into the paged cache, as they are or
// as FP8. Per element the roundings are those of ops::rms_norm, ops::rotary_embedding and
// ops::kv_cache_write one after the other.
//
// FP8 cache: q = e4m3(value / scale), saturating, to nearest even.
#pragma once

#include <cstdint>

#include "ops/device/gpu_element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct QkNormRopeCacheLaunch {
  // [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]: queries, keys, values. The keys stay
  // as they were.
  void* qkv = nullptr;
  void* q_out = nullptr;           // [num_tokens, num_heads * head_dim]; may be the queries of qkv
  const void* q_weight = nullptr;  // [head_dim] of qkv's type; null: no norm
  const void* k_weight = nullptr;  // [head_dim]; null together with q_weight
  const int32_t* positions = nullptr;     // [num_tokens]
  const float* cos_sin = nullptr;         // [max_position, rotary_dim]: cosines, then sines
  const int32_t* slot_mapping = nullptr;  // [num_tokens]; -1: not stored
  void* k_cache = nullptr;         // [num_slots, num_kv_heads, head_dim] of qkv's type or FP8
  void* v_cache = nullptr;         // like k_cache
  const float* k_scale = nullptr;  // [1], FP8 cache only
  const float* v_scale = nullptr;
  int64_t qkv_stride = 0;  // elements
  int64_t q_out_stride = 0;
  int64_t cos_sin_stride = 0;
  int32_t num_tokens = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;
  float eps = 0;
  GpuElement element = GpuElement::kBFloat16;  // of qkv
  bool interleaved = false;                    // pairs (2i, 2i + 1) rather than (i, i + half)
  bool float8_cache = false;
  bool overlaps_previous = false;
};

// 16-bit types; head_dim a power of two from 8 to 256; rotary_dim a multiple of 16, or of 8 when
// interleaved. Others run as operators of their own.
bool supports_qk_norm_rope_cache(const QkNormRopeCacheLaunch& params);
gpuError_t launch_qk_norm_rope_cache(const QkNormRopeCacheLaunch& params, gpuStream_t stream);

}  // namespace atom::ops
