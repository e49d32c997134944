#include "layers/vocab_parallel_embedding.h"

#include "layers/quant/pack_parameter.h"
#include "ops/embedding/embedding.h"

namespace atom {

VocabParallelEmbedding::VocabParallelEmbedding(const BuildContext& build, bool tied_to_head)
    : tied_to_head_(tied_to_head),
      weight_(build.dtype, Shape{build.config.vocab_size, build.config.hidden_size}) {
  register_parameter("weight", &weight_);
  if (tied_to_head_) {
    packed_ = ops::linear_weight_meta(weight_.shape()[0],
                                      weight_.shape()[1],
                                      build.dtype,
                                      ops::preferred_weight_layout(build.device));
  }
}

Status VocabParallelEmbedding::finish_load(const Stream& stream) {
  if (!tied_to_head_) return {};
  packed_ = pack_parameter(stream, &weight_);
  return {};
}

int64_t VocabParallelEmbedding::resident_bytes() const {
  return tied_to_head_ ? packed_.data.num_bytes() : weight_.num_bytes();
}

void VocabParallelEmbedding::forward(const Tensor& token_ids,
                                     const Tensor& out,
                                     const ForwardContext& context) const {
  if (tied_to_head_) {
    ops::gather_rows(context.stream, token_ids, packed_, out);
  } else {
    ops::embedding(context.stream, token_ids, weight_.data(), out);
  }
}

}  // namespace atom
