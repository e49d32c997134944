// Inside indexer_norm_rope_cache: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

constexpr int kIndexerMaxHeadDim = 512;

// One call. Strides are in elements.
struct IndexerNormRopeCacheArgs {
  void* q;
  const float* q_weight;  // null: no norm
  const void* k;
  const float* k_weight;
  const float* k_bias;  // null: RMSNorm
  const int32_t* positions;
  const float* cos_sin;
  const int32_t* slots;
  void* key_cache;
  int64_t q_stride;
  int64_t k_stride;
  int64_t num_tokens;
  int64_t num_heads;
  int64_t head_dim;
  int64_t rotary_dim;
  int64_t max_position;
  int64_t num_slots;
  float eps;
  Element element;
  bool interleaved;
};

using IndexerNormRopeCacheKernel = void(const IndexerNormRopeCacheArgs& args,
                                        int64_t begin,
                                        int64_t end);  // tokens

IndexerNormRopeCacheKernel indexer_norm_rope_cache_reference;

// On a GPU's queue (DeviceQueue::handle()). A slot or position out of range ends the process.
void indexer_norm_rope_cache_cuda(const IndexerNormRopeCacheArgs& args, void* queue);

}  // namespace atom::ops
