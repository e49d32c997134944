#include "nn/layer_cache.h"

namespace atom {

std::vector<size_t> StorageSpec::homes() const {
  std::vector<size_t> homes;
  std::vector<bool> is_shared(caches.size());
  for (size_t i = 0; i < caches.size(); ++i) {
    size_t home = 0;
    while (home < i && (is_shared[home] || !caches[home].can_share(caches[i]))) ++home;
    if (home < i) is_shared[home] = is_shared[i] = true;
    homes.push_back(home);
  }
  return homes;
}

int64_t StorageSpec::pool_bytes_per_token() const {
  const std::vector<size_t> homes = this->homes();
  int64_t bytes = 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (homes[i] == i) bytes += caches[i].bytes_per_token();
  }
  return bytes;
}

}  // namespace atom
