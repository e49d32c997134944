#include "layers/vocab_parallel_embedding.h"

#include "layers/quant/pack_parameter.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/gather_rows.h"
#include "tensor/copy_rows.h"

namespace atom {

VocabParallelEmbedding::VocabParallelEmbedding(BuildContext& build, bool tied_to_head)
    : part_(vocab_part(build)),
      parallel_(build.parallel),
      tied_to_head_(tied_to_head),
      weight_(make_vocab_weight(build, part_)) {
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
  const Stream& stream = context.stream;
  if (part_.is_whole()) {
    return tied_to_head_ ? ops::gather_rows(stream, token_ids, packed_, out)
                         : ops::embedding(stream, token_ids, weight_.data(), out);
  }
  // Ranks add up contiguous rows.
  const Workspace::Scope scope(context.workspace);
  const bool is_in_place = out.is_contiguous();
  const Tensor rows = is_in_place ? out : context.workspace.tensor(out.shape(), out.dtype());
  if (tied_to_head_) {
    ops::gather_rows_of_part(stream, token_ids, packed_, part_.first, rows);
  } else {
    ops::embedding_of_part(stream, token_ids, weight_.data(), part_.first, rows);
  }
  parallel_.all_reduce(stream, rows);
  if (!is_in_place) copy_rows(stream, rows, out);
}

}  // namespace atom
