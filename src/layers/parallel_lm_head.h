// The output head: hidden states to logits over the vocabulary. Ranks have a part of it each and
// gather what they computed: all of them have all logits, the same bits.
#pragma once

#include <memory>

#include "layers/vocab_parallel_embedding.h"

namespace atom {

class ParallelLMHead : public Module {
 public:
  // With a weight of its own, or with the embedding's when `tied` is not null. `tied` outlives
  // this.
  ParallelLMHead(BuildContext& build, const VocabParallelEmbedding* tied);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // hidden [num_rows, hidden_size] -> logits [num_rows, vocab_size] float32.
  void forward(const Tensor& hidden, const Tensor& logits, const ForwardContext& context) const;

  // Of this rank's ids alone: hidden -> workspace tensor [num_rows, part().count] float32.
  Tensor forward_part(const Tensor& hidden, const ForwardContext& context) const;
  const VocabPart& part() const { return part_; }

  // This rank's part; meta until finish_load.
  const ops::LinearWeight& weight() const {
    return tied_ != nullptr ? tied_->packed_weight() : packed_;
  }
  // forward() by another form of weight().
  void forward_by(const ops::LinearWeight& weight,
                  const Tensor& hidden,
                  const Tensor& logits,
                  const ForwardContext& context) const;

 private:
  const VocabParallelEmbedding* tied_;
  VocabPart part_;
  ParallelContext parallel_;
  std::unique_ptr<Parameter> weight_;  // [part.count, hidden_size], empty after finish_load
  ops::LinearWeight packed_;
};

}  // namespace atom
