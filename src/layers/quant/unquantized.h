// QuantType No: the weight in the model's dtype, repacked once for the kernels of this machine.
#pragma once

#include "layers/quant/linear_method.h"

namespace atom {

class UnquantizedLinearMethod : public LinearMethod {
 public:
  UnquantizedLinearMethod(const BuildContext& build, const LinearPartition& partition);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override { return packed_.data.num_bytes(); }
  const ops::LinearWeight* plain_weight() const override { return &packed_; }
  void apply(const Stream& stream,
             const Activation& x,
             const Tensor& bias,
             const Tensor& y,
             Workspace& workspace) const override;
  void apply_silu_and_mul(const Stream& stream,
                          const Activation& x,
                          const Tensor& bias,
                          const Activation& y,
                          DType dtype,
                          Workspace& workspace) const override;

 private:
  Parameter weight_;  // [local_out_features, local_in_features], empty after finish_load
  ops::LinearWeight packed_;
};

}  // namespace atom
