#include "layers/quant/unquantized.h"

#include "layers/quant/pack_parameter.h"

namespace atom {
namespace {

Parameter make_weight(DType dtype, const LinearPartition& partition) {
  if (partition.is_packed()) {
    return Parameter(dtype, partition.out_slices, {partition.in_features});
  }
  const ParameterSlice& rows = partition.out_slices.front();
  const Shape full_shape = {rows.rows, partition.in_features};
  if (partition.in_part.world > 1) return Parameter(dtype, full_shape, 1, partition.in_part);
  return Parameter(dtype, full_shape, 0, rows.part);
}

}  // namespace

UnquantizedLinearMethod::UnquantizedLinearMethod(const BuildContext& build,
                                                 const LinearPartition& partition)
    : weight_(make_weight(build.dtype, partition)),
      packed_(ops::linear_weight_meta(partition.local_out_features(),
                                      partition.local_in_features(),
                                      build.dtype,
                                      ops::preferred_weight_layout(build.device))) {
  register_parameter("weight", &weight_);
}

Status UnquantizedLinearMethod::finish_load(const Stream& stream) {
  packed_ = pack_parameter(stream, &weight_);
  return {};
}

void UnquantizedLinearMethod::apply(const Stream& stream,
                                    const Tensor& x,
                                    const Tensor& bias,
                                    const Tensor& y,
                                    Workspace& workspace) const {
  ops::linear(stream, x, packed_, bias, y, workspace);
}

}  // namespace atom
