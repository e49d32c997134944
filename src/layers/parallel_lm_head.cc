#include "layers/parallel_lm_head.h"

#include "layers/quant/pack_parameter.h"

namespace atom {

ParallelLMHead::ParallelLMHead(const BuildContext& build, const VocabParallelEmbedding* tied)
    : tied_(tied) {
  if (tied_ != nullptr) return;
  const Shape shape = {build.config.vocab_size, build.config.hidden_size};
  weight_ = std::make_unique<Parameter>(build.dtype, shape);
  packed_ = ops::linear_weight_meta(
      shape[0], shape[1], build.dtype, ops::preferred_weight_layout(build.device));
  register_parameter("weight", weight_.get());
}

Status ParallelLMHead::finish_load(const Stream& stream) {
  if (tied_ != nullptr) return {};
  packed_ = pack_parameter(stream, weight_.get());
  return {};
}

int64_t ParallelLMHead::resident_bytes() const {
  return tied_ != nullptr ? 0 : packed_.data.num_bytes();
}

void ParallelLMHead::forward(const Tensor& hidden,
                             const Tensor& logits,
                             const ForwardContext& context) const {
  const ops::LinearWeight& weight = tied_ != nullptr ? tied_->packed_weight() : packed_;
  ops::linear(context.stream, hidden, weight, Tensor(), logits, context.workspace);
}

}  // namespace atom
