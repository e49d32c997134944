// An EAGLE-3 head: a draft model with a checkpoint of its own. The states of some of the target's
// layers, side by side, are projected to its width; its first layer attends over the embedding of
// the token and that state, both normalized, with the state as residual stream. It chooses among
// ids of its own, of which "d2t" says what they mean.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/draft_head.h"
#include "layers/linear/replicated_linear.h"
#include "models/blocks/decoder.h"
#include "models/blocks/eagle3_config.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gqa_attention.h"
#include "models/draft_model.h"

namespace atom {

class Eagle3Head : public DraftModel {
 public:
  // `build` is of config.model; `of_head` likewise, with the vocabulary of the head's ids.
  Eagle3Head(BuildContext& build,
             BuildContext& of_head,
             const CausalLM& target,
             const Eagle3Config& config,
             WeightMapping weight_mapping);

  Status finish_load(const Stream& stream) override;

  const WeightMapping* weight_mapping() const override { return &weight_mapping_; }
  int num_layers() const override { return 1; }
  int64_t hidden_size() const override { return hidden_size_; }
  std::span<const int> aux_layers() const override { return aux_layers_; }
  Tensor forward(const Tensor& hidden,
                 const Tensor& hidden_rows,
                 int draft,
                 const ForwardContext& context) const override;
  void compute_logits(const Tensor& hidden,
                      const Tensor& logits,
                      const ForwardContext& context) const override;
  int64_t num_ids() const override { return num_ids_; }
  Tensor token_table() const override { return token_table_; }

 private:
  // What the target's states pass before they are projected.
  void make_state_norms(BuildContext& build, const Eagle3Config& config);
  // [num_tokens, hidden_size]: of the target's states, for the first draft.
  Tensor project(const Tensor& hidden,
                 const Tensor& hidden_rows,
                 const ForwardContext& context) const;
  // The first layer, whose input is the embedding beside the state.
  void attend(const ResidualStream& residual, const ForwardContext& context) const;

  const CausalLM& target_;
  WeightMapping weight_mapping_;
  std::vector<int> aux_layers_;
  int64_t hidden_size_;
  int64_t target_hidden_size_;
  int64_t vocab_size_;
  int64_t num_ids_;
  DType dtype_;
  bool norm_before_residual_;
  bool norm_output_;
  RotaryEmbedding rotary_;
  std::unique_ptr<VocabParallelEmbedding> embed_tokens_;  // null: the target's
  std::unique_ptr<RMSNorm> input_norm_;                   // null without
  std::vector<std::unique_ptr<RMSNorm>> fc_norms_;        // one for each state, or none
  ReplicatedLinear fc_;
  RMSNorm input_layernorm_;  // of the embedding
  RMSNorm hidden_norm_;
  GqaAttention attention_;
  RMSNorm post_attention_layernorm_;
  GatedMLP mlp_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;  // behind the first
  RMSNorm norm_;
  ParallelLMHead lm_head_;
  DraftHead head_;
  std::optional<Parameter> token_map_;  // [num_ids] int64: added to an id; none: ids are tokens
  Tensor token_table_;                  // the sums, from finish_load on
};

}  // namespace atom
