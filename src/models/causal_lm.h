// What a runner sees of a model: hidden states of a step, logits of chosen rows, and how its
// checkpoint's tensors are named. One forward pass at a time; weights are const after loading.
#pragma once

#include <memory>
#include <vector>

#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "nn/weight_mapping.h"

namespace atom {

class ParallelLMHead;
class VocabParallelEmbedding;

class CausalLM : public Module {
 public:
  // -> workspace tensor [num_tokens, hidden_size] after the final norm; without content on a rank
  // of a stage before the last.
  virtual Tensor forward(const ForwardContext& context) const = 0;

  // hidden [num_rows, hidden_size] -> logits [num_rows, vocab_size] float32, on all ranks of the
  // last stage the same. Nothing on others.
  virtual void compute_logits(const Tensor& hidden,
                              const Tensor& logits,
                              const ForwardContext& context) const = 0;

  virtual const WeightMapping& weight_mapping() const = 0;

  // For a draft model, which may multiply by the same weights. They live as long as this.
  // Asked of a pipeline's last stage, which has an embedding if BuildContext::last_stage_embeds.
  virtual const VocabParallelEmbedding& embed_tokens() const = 0;
  virtual const ParallelLMHead& lm_head() const = 0;
};

}  // namespace atom
