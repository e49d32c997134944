// The paged KV cache as layers see it.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace atom {

// What one attention layer stores per token, asked before the cache is allocated.
struct KVCacheSpec {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kBFloat16;

  // K and V of one token.
  int64_t bytes_per_token() const { return 2 * num_kv_heads * head_dim * dtype_size(dtype); }
};

// One layer's cache.
struct KVCacheView {
  Tensor k;  // [num_blocks, block_size, num_kv_heads, head_dim]
  Tensor v;  // [num_blocks, block_size, num_kv_heads, head_dim]
};

}  // namespace atom
