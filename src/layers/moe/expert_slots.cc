#include "layers/moe/expert_slots.h"

#include <utility>

#include "base/check.h"

namespace atom {

ExpertSlots::ExpertSlots(const ParallelContext& parallel, int64_t num_experts)
    : placement_(
          first_placement(num_experts, parallel.num_redundant_experts, parallel.expert_size())),
      slots_of_(placement_.slots_of_experts()),
      counts_(num_experts, 0) {}

void ExpertSlots::set_placement(ExpertPlacement placement) {
  CHECK(placement.num_experts == placement_.num_experts);
  CHECK(placement.num_ranks == placement_.num_ranks);
  CHECK(placement.num_slots() == placement_.num_slots());
  placement_ = std::move(placement);
  slots_of_ = placement_.slots_of_experts();
}

void ExpertSlots::choose(const Tensor& ids, const ForwardContext& context) {
  if (context.stream.is_dry_run()) return;
  CHECK(ids.size(0) == context.num_tokens());
  const auto num_experts = static_cast<int32_t>(placement_.num_experts);
  const auto num_more = static_cast<int32_t>(placement_.num_slots()) - num_experts;
  const bool counts = is_counting_ && !context.is_dummy;
  int32_t* id = ids.data<int32_t>();
  for (int64_t t = 0; t < ids.size(0); ++t) {
    // What the token has of its own: neighbors in a batch go to other slots all the same.
    const auto token = static_cast<uint32_t>(context.token_ids.data<int32_t>()[t]) +
                       static_cast<uint32_t>(context.positions.data<int32_t>()[t]);
    for (int64_t j = 0; j < ids.size(1); ++j, ++id) {
      if (*id < 0) continue;
      if (*id >= num_experts) {
        *id += num_more;
        continue;
      }
      if (counts) ++counts_[*id];
      const std::vector<int32_t>& slots = slots_of_[*id];
      *id = slots[token % slots.size()];
    }
  }
}

std::vector<int64_t> ExpertSlots::take_counts() {
  is_counting_ = false;
  return std::exchange(counts_, std::vector<int64_t>(counts_.size(), 0));
}

}  // namespace atom
