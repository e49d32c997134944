// Several projections of the same input in one multiplication, each split along its output:
// gate_up_proj = rows [gate | up]. One projection alone (a ColumnParallelLinear elsewhere) is one
// part with an empty id.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/linear/linear_base.h"

namespace atom {

class MergedColumnParallelLinear : public LinearBase {
 public:
  // `outputs`: (slice id, out_features) in row order.
  MergedColumnParallelLinear(BuildContext& build,
                             int64_t in_features,
                             const std::vector<std::pair<std::string, int64_t>>& outputs,
                             bool has_bias);
};

}  // namespace atom
