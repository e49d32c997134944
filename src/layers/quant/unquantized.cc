#include "layers/quant/unquantized.h"

#include "layers/quant/make_weight.h"
#include "layers/quant/pack_parameter.h"

namespace atom {
UnquantizedLinearMethod::UnquantizedLinearMethod(DType dtype, const LinearPartition& partition)
    : weight_(make_weight(dtype, partition)),
      packed_(ops::linear_weight_meta(
          partition.local_out_features(), partition.local_in_features(), dtype)) {
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
