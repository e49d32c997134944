// Where experts that are spread over ranks stand, and where they would stand better: from how many
// tokens chose each. Numbers alone; every rank computes the same from the same loads.
#pragma once

#include <cstdint>
#include <vector>

namespace atom {

// Every rank has as many slots, those of a rank one behind the other, and each slot an expert. No
// rank has one twice; one that stands in several slots is computed by each of them for some tokens.
struct ExpertPlacement {
  int64_t num_experts = 0;
  int32_t num_ranks = 1;
  std::vector<int32_t> expert_of;  // [slots], all ranks together

  int64_t num_slots() const { return static_cast<int64_t>(expert_of.size()); }
  int64_t slots_of_rank() const { return num_slots() / num_ranks; }
  // The slots of each expert, ascending.
  std::vector<std::vector<int32_t>> slots_of_experts() const;

  bool operator==(const ExpertPlacement&) const = default;
};

// Where experts stand while nothing is known: in order, and again from the first. The ranks divide
// the slots, of which each has at most as many as there are experts.
ExpertPlacement first_placement(int64_t num_experts, int64_t num_redundant, int32_t num_ranks);

// Tokens of each rank's experts; experts in several slots share theirs evenly.
std::vector<double> loads_of_ranks(const std::vector<int64_t>& loads,  // by expert
                                   const ExpertPlacement& placement);

// How evenly: the mean of the ranks over the largest; 1 without tokens.
double balancedness(const std::vector<int64_t>& loads, const ExpertPlacement& placement);

// As many slots, in which these loads are as even as a greedy choice makes them: again and again
// one slot more for the expert with the most tokens a slot, then each, the largest first, to the
// rank with the fewest tokens. Experts that stay on a rank keep their slot there. `now` itself
// where this would not be better.
ExpertPlacement balanced_placement(const std::vector<int64_t>& loads, const ExpertPlacement& now);

// An expert of one slot is copied over that of another.
struct ExpertMove {
  static constexpr int32_t kAside = -1;  // a place beside the slots, on the rank of the other slot
  int32_t from = 0;
  int32_t to = 0;
  int32_t aside_rank = 0;  // where one of them is kAside: the rank that has it

  bool operator==(const ExpertMove&) const = default;
};

// One after the other they make `before` `after`; no slot is written while another still needs what
// is in it. One place aside is enough: it is written again only after it was read.
std::vector<ExpertMove> plan_moves(const ExpertPlacement& before, const ExpertPlacement& after);

}  // namespace atom
