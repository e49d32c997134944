#include "runner/kv_cache_allocator.h"

namespace atom {

std::vector<KVCacheView> allocate_kv_caches(const std::vector<KVCacheSpec>& specs,
                                            int64_t num_blocks,
                                            int64_t block_size) {
  std::vector<KVCacheView> caches;
  for (const KVCacheSpec& spec : specs) {
    const Shape shape = {num_blocks, block_size, spec.num_kv_heads, spec.head_dim};
    caches.push_back({Tensor::empty(shape, spec.dtype), Tensor::empty(shape, spec.dtype)});
  }
  return caches;
}

}  // namespace atom
