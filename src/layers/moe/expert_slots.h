// The slots of one layer's experts, of which the ranks have as many each: which slot a choice of an
// expert means, and how many tokens chose each expert. Of the thread that owns the rank's model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/moe/expert_placement.h"
#include "nn/forward_context.h"
#include "nn/parallel_context.h"

namespace atom {

class ExpertSlots {
 public:
  ExpertSlots(const ParallelContext& parallel, int64_t num_experts);

  const ExpertPlacement& placement() const { return placement_; }
  // Of as many experts, slots and ranks.
  void set_placement(ExpertPlacement placement);

  // ids [num_tokens, k] int32 on the CPU: those of experts become those of slots, those behind
  // them (of shared experts) stay behind, negative ones stay. Of an expert in several slots a token
  // has the same in every batch and on all ranks that have the token.
  void choose(const Tensor& ids, const ForwardContext& context);

  // From now on the tokens of passes count that are no dummies.
  void start_counting() { is_counting_ = true; }
  // By expert, since then; they are 0 and nothing counts afterwards.
  std::vector<int64_t> take_counts();

 private:
  ExpertPlacement placement_;
  std::vector<std::vector<int32_t>> slots_of_;  // by expert
  bool is_counting_ = false;
  std::vector<int64_t> counts_;  // by expert
};

}  // namespace atom
