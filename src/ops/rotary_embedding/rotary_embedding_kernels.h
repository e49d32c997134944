// Inside rotary_embedding: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct RotaryEmbeddingArgs {
  struct Heads {
    void* data;
    int64_t num_heads;
    int64_t token_stride;
    int64_t head_stride;
  };
  Heads heads[2];  // queries, keys
  const int32_t* positions;
  const float* cos_sin;
  int64_t cos_sin_stride;
  int64_t max_position;
  int64_t rotary_dim;
  Element element;
  bool interleaved;
};

using RotaryEmbeddingKernel = void(const RotaryEmbeddingArgs& args,
                                   int64_t begin,  // tokens
                                   int64_t end);

RotaryEmbeddingKernel rotary_embedding_reference;
RotaryEmbeddingKernel rotary_embedding_avx2;
RotaryEmbeddingKernel rotary_embedding_avx512;

// On a GPU's queue (DeviceQueue::handle()). A position outside the table ends the process.
using RotaryEmbeddingGpuKernel = void(const RotaryEmbeddingArgs& args,
                                      int64_t num_tokens,
                                      void* queue);

// May start before the kernel before has ended.
RotaryEmbeddingGpuKernel rotary_embedding_cuda;

}  // namespace atom::ops
