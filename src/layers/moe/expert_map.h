// Which experts a rank has when they are spread over ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace atom {

struct ExpertMap {
  int64_t first = 0;            // expert of this rank ...
  int64_t count = 0;            // ... and how many follow each other
  std::vector<int32_t> places;  // by expert: where it stands among this rank's, or -1
};

// Consecutive experts, the first of the ranks one more each where they do not divide.
ExpertMap determine_expert_map(int ep_size, int ep_rank, int64_t num_experts);

}  // namespace atom
