#include "layers/linear/row_parallel_linear.h"

namespace atom {

RowParallelLinear::RowParallelLinear(BuildContext& build,
                                     int64_t in_features,
                                     int64_t out_features,
                                     bool has_bias)
    : LinearBase(
          build, {{{"", out_features, {}}}, in_features, tensor_parallel_part(build)}, has_bias) {
  // The sum over ranks needs a Communicator; configurations with more than one rank are refused.
  CHECK(build.parallel.tensor_parallel_size == 1);
}

}  // namespace atom
