#include "layers/linear/row_parallel_linear.h"

namespace atom {
namespace {

LinearPartition make_row_partition(BuildContext& build, int64_t in_features, int64_t out_features) {
  require_even_split(build, in_features, "inputs");
  return {{{"", out_features, {}}}, in_features, tensor_parallel_part(build)};
}

}  // namespace

RowParallelLinear::RowParallelLinear(BuildContext& build,
                                     int64_t in_features,
                                     int64_t out_features,
                                     bool has_bias)
    : LinearBase(build,
                 make_row_partition(build, in_features, out_features),
                 has_bias,
                 build.parallel.is_first()) {}

}  // namespace atom
