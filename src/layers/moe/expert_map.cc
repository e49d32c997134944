#include "layers/moe/expert_map.h"

#include <algorithm>

#include "base/check.h"

namespace atom {

ExpertMap determine_expert_map(int ep_size, int ep_rank, int64_t num_experts) {
  CHECK(ep_rank >= 0);
  CHECK(ep_rank < ep_size);
  const int64_t base = num_experts / ep_size, more = num_experts % ep_size;
  ExpertMap map;
  map.first = ep_rank * base + std::min<int64_t>(ep_rank, more);
  map.count = base + (ep_rank < more ? 1 : 0);
  map.places.assign(num_experts, -1);
  for (int64_t i = 0; i < map.count; ++i) map.places[map.first + i] = static_cast<int32_t>(i);
  return map;
}

}  // namespace atom
