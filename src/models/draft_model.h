// A head that guesses the tokens behind the next one, as EagleProposer sees it: a few layers that
// go on from the target's hidden states. Row i stands for position p of a sequence: it gets the
// hidden state of p and the token at p + 1, keeps its keys and values under p, and its logits are
// about the token at p + 2. May multiply by weights of its target, which outlives it.
#pragma once

#include <cstdint>
#include <span>

#include "nn/forward_context.h"
#include "nn/module.h"
#include "nn/weight_mapping.h"

namespace atom {

class DraftModel : public Module {
 public:
  // How a checkpoint of its own names its tensors; null: they are in the target's.
  virtual const WeightMapping* weight_mapping() const = 0;

  // Layers that have caches of their own. The draft behind `i` others is made by layer i, and by
  // the last one again where there is none.
  virtual int num_layers() const = 0;

  // The width of what forward() gives.
  virtual int64_t hidden_size() const = 0;
  // Layers of the target whose input it reads, ascending (BuildContext::aux_layers); none: it reads
  // the target's last hidden states.
  virtual std::span<const int> aux_layers() const = 0;

  // For draft number `draft`, from 0 on. context.token_ids are the tokens behind the rows'
  // positions. Row t's hidden state is row `hidden_rows`[t] of `hidden`: for the first draft of the
  // target, or of each part of ForwardContext::aux_hidden where there are aux_layers(); else of the
  // draft before.
  // -> workspace tensor [num_tokens, hidden_size()], for compute_logits() and the draft behind.
  virtual Tensor forward(const Tensor& hidden,       // [*, the width of what it reads]
                         const Tensor& hidden_rows,  // [num_tokens] int32
                         int draft,
                         const ForwardContext& context) const = 0;

  // hidden [num_rows, hidden_size()] of forward() -> logits [num_rows, num_ids()] float32.
  virtual void compute_logits(const Tensor& hidden,
                              const Tensor& logits,
                              const ForwardContext& context) const = 0;

  // Ids that it chooses among.
  virtual int64_t num_ids() const = 0;
  // [num_ids(), 1] int32, where the model is: the target's token that each id means. Undefined: an
  // id is a token.
  virtual Tensor token_table() const = 0;
};

}  // namespace atom
