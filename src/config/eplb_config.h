// Experts that are spread over ranks may be moved while serving, so that the ranks have about as
// much to do, and the busiest of them doubled ("expert parallel load balancing").
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace atom {

struct EplbConfig {
  bool enabled = false;
  std::string json;  // an object of what follows, by the same names; empty: these count
  // Slots of each layer, all ranks together, beyond one for each expert.
  int32_t num_redundant_experts = 0;
  int32_t load_window_size = 1000;    // steps in front of a move whose tokens are counted
  int32_t rebalance_interval = 3000;  // steps from one move to the next
  // Nothing moves where the ranks' mean is so much of the largest, or more.
  double rebalance_min_balancedness = 1;
};

// Reads `json` and refuses what does not fit together.
Result<EplbConfig> resolve_eplb(const EplbConfig& config);

}  // namespace atom
