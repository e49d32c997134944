// The slots of one layer's experts, of which the ranks have as many each: which slot a choice of an
// expert means, and how many tokens chose each expert. Of the thread that owns the rank's model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layers/moe/expert_placement.h"
#include "nn/forward_context.h"
#include "nn/parallel_context.h"
#include "ops/expert_slots/expert_slots.h"
#include "tensor/host_mirror.h"

namespace atom {

class ExpertSlots {
 public:
  ExpertSlots(const ParallelContext& parallel, int64_t num_experts);

  // Takes its memory where `stream`, which outlives this, works; before anything is chosen.
  void allocate(const Stream& stream);
  int64_t resident_bytes() const;

  const ExpertPlacement& placement() const { return placement_; }
  // A placement of as many experts, slots and ranks. It counts for what is enqueued from now on.
  void set_placement(ExpertPlacement placement);

  // ids [num_tokens, k] int32: those of experts become those of slots (ops/expert_slots). Ranks
  // that have the same token choose the same slot for it.
  void choose(const Tensor& ids, const ForwardContext& context);

  // From now on the tokens of passes count that are neither dummies nor padding.
  void start_counting();
  // Choices of each expert since then; counting ends, at 0. Waits for the stream.
  std::vector<int64_t> take_counts();

 private:
  int64_t table_size() const;
  // Tells operators what they are to know.
  void send();

  ExpertPlacement placement_;
  bool is_counting_ = false;
  const Stream* stream_ = nullptr;
  std::optional<HostMirror> table_;  // ops::ExpertPlaces' table
  Tensor counts_;                    // [num_experts] int64
};

}  // namespace atom
