#include "layers/quant/unquantized.h"

#include "layers/quant/make_weight.h"
#include "layers/quant/pack_parameter.h"
#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"

namespace atom {

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
                                    const Activation& x,
                                    const Tensor& bias,
                                    const Tensor& y,
                                    Workspace& workspace) const {
  ops::linear(stream, x.rows, packed_, bias, y, workspace);
}

void UnquantizedLinearMethod::apply_silu_and_mul(const Stream& stream,
                                                 const Activation& x,
                                                 const Tensor& bias,
                                                 const Activation& y,
                                                 DType dtype,
                                                 Workspace& workspace) const {
  if (y.has_codes()) {
    ops::linear_silu_and_mul_quantized(
        stream, x.rows, Tensor(), packed_, bias, dtype, y.codes, workspace);
  } else {
    ops::linear_silu_and_mul(stream, x.rows, packed_, bias, y.rows, workspace);
  }
}

}  // namespace atom
