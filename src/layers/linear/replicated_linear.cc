#include "layers/linear/replicated_linear.h"

namespace atom {
namespace {

LinearPartition make_partition(int64_t in_features,
                               const std::vector<std::pair<std::string, int64_t>>& outputs) {
  LinearPartition partition;
  partition.in_features = in_features;
  for (const auto& [id, rows] : outputs) partition.out_slices.push_back({id, rows, {}});
  return partition;
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(BuildContext& build,
                                   int64_t in_features,
                                   int64_t out_features,
                                   bool has_bias)
    : ReplicatedLinear(build, in_features, {{"", out_features}}, has_bias) {}

ReplicatedLinear::ReplicatedLinear(BuildContext& build,
                                   int64_t in_features,
                                   const std::vector<std::pair<std::string, int64_t>>& outputs,
                                   bool has_bias)
    : LinearBase(build, make_partition(in_features, outputs), has_bias) {}

}  // namespace atom
