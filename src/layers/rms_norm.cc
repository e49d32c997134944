#include "layers/rms_norm.h"

#include "ops/rms_norm/rms_norm.h"
#include "tensor/device_arena.h"

namespace atom {

RMSNorm::RMSNorm(const BuildContext& build, int64_t size, NormWeight kind)
    : kind_(kind),
      leaves_codes_(build.fusions.rms_norm_quant),
      adds_up_parts_(build.fusions.all_reduce_rms_norm),
      parallel_(build.parallel),
      weight_(kind == NormWeight::kModelDtype ? build.dtype : DType::kFloat32, Shape{size}),
      eps_(build.config.rms_norm_eps) {
  if (kind_ == NormWeight::kZeroCentered) {
    weight_.keep_on_host();
    one_plus_weight_ = Tensor::meta({size}, DType::kFloat32);
  }
  register_parameter("weight", &weight_);
}

Status RMSNorm::finish_load(const Stream& stream) {
  if (kind_ != NormWeight::kZeroCentered) return {};
  float* weight = weight_.data().data<float>();
  for (int64_t i = 0; i < weight_.data().num_elements(); ++i) weight[i] += 1.0f;
  one_plus_weight_ = resident_copy(stream, weight_.data());
  weight_.release();
  return {};
}

void RMSNorm::forward(const Tensor& x, const ForwardContext& context) const {
  ops::rms_norm(context.stream, x, weight(), eps_, x);
}

Activation RMSNorm::forward(const Tensor& x,
                            const ActivationFormat& format,
                            const ForwardContext& context) const {
  return normalize(x, Tensor(), nullptr, format, context);
}

Activation RMSNorm::forward_add(const Tensor& x,
                                const Tensor& residual,
                                const ActivationFormat& format,
                                const ForwardContext& context,
                                bool is_part) const {
  if (is_part && adds_up_parts_) {
    return normalize(x, residual, parallel_.tensor_parallel, format, context);
  }
  if (is_part) parallel_.all_reduce(context.stream, x);
  return normalize(x, residual, nullptr, format, context);
}

Activation RMSNorm::normalize(const Tensor& x,
                              const Tensor& residual,
                              Communicator* ranks,
                              const ActivationFormat& format,
                              const ForwardContext& context) const {
  const Stream& stream = context.stream;
  Workspace& workspace = context.workspace;
  const bool has_codes = leaves_codes_ && format.has_codes();
  const Tensor rows = has_codes && !format.rows ? Tensor() : workspace.tensor(x.shape(), x.dtype());
  const ops::QuantizedRows codes =
      has_codes ? make_codes(format, x.size(0), x.size(1), workspace) : ops::QuantizedRows();
  if (ranks != nullptr) {
    ops::add_rms_norm_of_ranks(stream, *ranks, x, residual, weight(), eps_, rows, codes, workspace);
  } else if (has_codes) {
    ops::add_rms_norm(stream, x, residual, weight(), eps_, rows, codes, workspace);
  } else if (residual.defined()) {
    ops::add_rms_norm(stream, x, residual, weight(), eps_, rows);
  } else {
    ops::rms_norm(stream, x, weight(), eps_, rows);
  }
  if (!has_codes) return rows;
  return {rows, codes};
}

}  // namespace atom
