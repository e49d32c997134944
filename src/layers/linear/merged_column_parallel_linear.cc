#include "layers/linear/merged_column_parallel_linear.h"

namespace atom {
namespace {

LinearPartition make_partition(BuildContext& build,
                               int64_t in_features,
                               const std::vector<std::pair<std::string, int64_t>>& outputs) {
  for (const auto& output : outputs) require_even_split(build, output.second, "outputs");
  LinearPartition partition;
  partition.in_features = in_features;
  for (const auto& [id, rows] : outputs) {
    partition.out_slices.push_back({id, rows, tensor_parallel_part(build)});
  }
  return partition;
}

}  // namespace

MergedColumnParallelLinear::MergedColumnParallelLinear(
    BuildContext& build,
    int64_t in_features,
    const std::vector<std::pair<std::string, int64_t>>& outputs,
    bool has_bias)
    : LinearBase(build, make_partition(build, in_features, outputs), has_bias) {}

}  // namespace atom
