// Inside latent_norm_rope_cache: what its kernel takes.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct LatentNormRopeCacheArgs {
  void* q;  // [num_tokens, num_heads, rope_dim]
  int64_t q_token_stride;
  int64_t q_head_stride;
  int64_t num_heads;
  const void* kv;  // [num_tokens, rank + rope_dim]
  int64_t kv_stride;
  const void* weight;        // [rank]
  void* cache;               // [num_slots, rank + rope_dim]
  const int32_t* positions;  // [num_tokens]
  const int32_t* slots;      // [num_tokens]
  const float* cos_sin;      // [max_position, rope_dim]
  int64_t cos_sin_stride;
  int64_t max_position;
  int64_t num_tokens;
  int64_t num_slots;
  int rank;
  int rope_dim;
  float eps;
  Element element;
  bool interleaved;
  bool float8_cache;
};

// 16-bit types in rows of whole 16 bytes, latents of up to 1024 elements.
bool fits_latent_norm_rope_cache_cuda(const LatentNormRopeCacheArgs& args);

// On a GPU's queue (DeviceQueue::handle()). A slot outside the cache or a position outside the
// table ends the process.
void latent_norm_rope_cache_cuda(const LatentNormRopeCacheArgs& args, void* queue);

}  // namespace atom::ops
