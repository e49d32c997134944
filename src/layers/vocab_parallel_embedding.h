// The token embedding: rows of a [vocab_size, hidden_size] weight, of which a rank has a part. An
// id that is another rank's is a row of zeros here, so that the sum over ranks is exact.
#pragma once

#include "layers/vocab_part.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"

namespace atom {

class VocabParallelEmbedding : public Module {
 public:
  // `tied_to_head`: the output head multiplies by the same weight. It is then repacked for matrix
  // multiplication and lookups gather rows from there, so that it exists once in memory.
  VocabParallelEmbedding(BuildContext& build, bool tied_to_head);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // token_ids [num_tokens] int32 -> out [num_tokens, hidden_size], row stride allowed.
  void forward(const Tensor& token_ids, const Tensor& out, const ForwardContext& context) const;

  // The head's weight; only when tied. Its rows are those of part().
  const ops::LinearWeight& packed_weight() const { return packed_; }
  const VocabPart& part() const { return part_; }

 private:
  VocabPart part_;
  ParallelContext parallel_;
  bool tied_to_head_;
  Parameter weight_;          // [part.count, hidden_size]; empty after finish_load when tied
  ops::LinearWeight packed_;  // undefined unless tied
};

}  // namespace atom
