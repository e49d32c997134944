#include "runner/kv_cache_allocator.h"

#include "tensor/device_arena.h"

namespace atom {

std::vector<KVCacheView> allocate_kv_caches(const Stream& stream,
                                            const std::vector<KVCacheSpec>& specs,
                                            int64_t num_blocks,
                                            int64_t block_size) {
  std::vector<KVCacheView> caches;
  for (const KVCacheSpec& spec : specs) {
    const Shape shape = {num_blocks, block_size, spec.num_kv_heads, spec.head_dim};
    caches.push_back(
        {resident_tensor(stream, shape, spec.dtype), resident_tensor(stream, shape, spec.dtype)});
  }
  return caches;
}

}  // namespace atom
