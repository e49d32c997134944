// A projection that every rank computes whole: routers, indexers, down-projections to a latent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/linear/linear_base.h"

namespace atom {

class ReplicatedLinear : public LinearBase {
 public:
  // One tensor of the checkpoint.
  ReplicatedLinear(BuildContext& build, int64_t in_features, int64_t out_features, bool has_bias);
  // Several in one multiplication. `outputs`: (slice id, out_features) in row order.
  ReplicatedLinear(BuildContext& build,
                   int64_t in_features,
                   const std::vector<std::pair<std::string, int64_t>>& outputs,
                   bool has_bias);
};

}  // namespace atom
