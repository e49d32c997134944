#include "layers/moe/expert_placement.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace atom {
namespace {

// Which experts each rank has, and their tokens, while they are dealt out.
struct Dealt {
  Dealt(int32_t num_ranks, int64_t num_experts)
      : experts(num_ranks),
        loads(num_ranks, 0),
        has(num_ranks, std::vector<bool>(num_experts, false)) {}

  void give(int32_t rank, int32_t expert, double load) {
    experts[rank].push_back(expert);
    has[rank][expert] = true;
    loads[rank] += load;
  }

  void take(int32_t rank, int32_t expert, double load) {
    std::erase(experts[rank], expert);
    has[rank][expert] = false;
    loads[rank] -= load;
  }

  std::vector<std::vector<int32_t>> experts;  // by rank
  std::vector<double> loads;
  std::vector<std::vector<bool>> has;
};

// How many slots each expert gets: ties go to the one with fewer slots, then to the first.
std::vector<int32_t> count_slots(const std::vector<int64_t>& loads,
                                 int64_t num_slots,
                                 int32_t num_ranks) {
  std::vector<int32_t> counts(loads.size(), 1);
  for (auto left = num_slots - std::ssize(loads); left > 0; --left) {
    size_t best = loads.size();
    for (size_t e = 0; e < loads.size(); ++e) {
      if (counts[e] == num_ranks) continue;
      if (best == loads.size()) {
        best = e;
        continue;
      }
      const double load = static_cast<double>(loads[e]) / counts[e];
      const double most = static_cast<double>(loads[best]) / counts[best];
      if (load > most || (load == most && counts[e] < counts[best])) best = e;
    }
    CHECK(best < loads.size());
    ++counts[best];
  }
  return counts;
}

// The rank with the fewest tokens of those that lack the expert and have fewer than `most`
// experts (exactly that many: `full`); -1: none.
int32_t least_loaded(const Dealt& dealt, int32_t expert, int64_t most, bool full) {
  int32_t best = -1;
  for (int32_t rank = 0; rank < std::ssize(dealt.experts); ++rank) {
    if (dealt.has[rank][expert] || (std::ssize(dealt.experts[rank]) == most) != full) continue;
    if (best < 0 || dealt.loads[rank] < dealt.loads[best]) best = rank;
  }
  return best;
}

// Only ranks that have the expert have room: another one takes it, and gives such a rank one that
// it lacks.
void deal_by_exchange(int32_t expert,
                      int64_t slots_of_rank,
                      const std::vector<double>& load_of,
                      Dealt* dealt) {
  const int32_t taker = least_loaded(*dealt, expert, slots_of_rank, /*full=*/true);
  CHECK(taker >= 0);
  const auto room = std::ranges::find_if(dealt->experts, [&](const std::vector<int32_t>& experts) {
    return std::ssize(experts) < slots_of_rank;
  });
  const auto rank = static_cast<int32_t>(room - dealt->experts.begin());
  // It has fewer experts than the other.
  const auto given = std::ranges::find_if(dealt->experts[taker],
                                          [&](int32_t other) { return !dealt->has[rank][other]; });
  const int32_t other = *given;
  dealt->take(taker, other, load_of[other]);
  dealt->give(rank, other, load_of[other]);
  dealt->give(taker, expert, load_of[expert]);
}

Dealt deal(const std::vector<int64_t>& loads, int64_t num_slots, int32_t num_ranks) {
  const std::vector<int32_t> counts = count_slots(loads, num_slots, num_ranks);
  std::vector<double> load_of(loads.size());
  for (size_t e = 0; e < loads.size(); ++e) {
    load_of[e] = static_cast<double>(loads[e]) / counts[e];
  }
  std::vector<int32_t> order(loads.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return load_of[a] > load_of[b]; });
  Dealt dealt(num_ranks, std::ssize(loads));
  const int64_t slots_of_rank = num_slots / num_ranks;
  for (const int32_t expert : order) {
    for (int32_t i = 0; i < counts[expert]; ++i) {
      const int32_t rank = least_loaded(dealt, expert, slots_of_rank, /*full=*/false);
      if (rank >= 0) {
        dealt.give(rank, expert, load_of[expert]);
      } else {
        deal_by_exchange(expert, slots_of_rank, load_of, &dealt);
      }
    }
  }
  return dealt;
}

// Which of the dealt sets each rank gets: those with the most in common first.
std::vector<int32_t> match_ranks(const Dealt& dealt, const ExpertPlacement& now) {
  const int32_t num_ranks = now.num_ranks;
  const auto in_common = [&](int32_t rank, int32_t set) {
    int32_t count = 0;
    for (int64_t s = 0; s < now.slots_of_rank(); ++s) {
      if (dealt.has[set][now.expert_of[rank * now.slots_of_rank() + s]]) ++count;
    }
    return count;
  };
  struct Pair {
    int32_t common;
    int32_t rank;
    int32_t set;
  };
  std::vector<Pair> pairs;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    for (int32_t set = 0; set < num_ranks; ++set) {
      pairs.push_back({in_common(rank, set), rank, set});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), &Pair::common);
  std::vector<int32_t> set_of(num_ranks, -1);
  std::vector<bool> is_given(num_ranks, false);
  for (const Pair& pair : pairs) {
    if (set_of[pair.rank] >= 0 || is_given[pair.set]) continue;
    set_of[pair.rank] = pair.set;
    is_given[pair.set] = true;
  }
  return set_of;
}

}  // namespace

std::vector<std::vector<int32_t>> ExpertPlacement::slots_of_experts() const {
  std::vector<std::vector<int32_t>> slots(num_experts);
  for (size_t slot = 0; slot < expert_of.size(); ++slot) {
    slots[expert_of[slot]].push_back(static_cast<int32_t>(slot));
  }
  return slots;
}

ExpertPlacement first_placement(int64_t num_experts, int64_t num_redundant, int32_t num_ranks) {
  const int64_t num_slots = num_experts + num_redundant;
  CHECK(num_slots % num_ranks == 0);
  CHECK(num_slots / num_ranks <= num_experts);
  ExpertPlacement placement = {num_experts, num_ranks, {}};
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    placement.expert_of.push_back(static_cast<int32_t>(slot % num_experts));
  }
  return placement;
}

std::vector<double> loads_of_ranks(const std::vector<int64_t>& loads,
                                   const ExpertPlacement& placement) {
  const auto slots = placement.slots_of_experts();
  std::vector<double> of_ranks(placement.num_ranks, 0);
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.expert_of[slot];
    of_ranks[slot / placement.slots_of_rank()] +=
        static_cast<double>(loads[expert]) / static_cast<double>(slots[expert].size());
  }
  return of_ranks;
}

double balancedness(const std::vector<int64_t>& loads, const ExpertPlacement& placement) {
  const std::vector<double> of_ranks = loads_of_ranks(loads, placement);
  const double largest = *std::ranges::max_element(of_ranks);
  if (largest == 0) return 1;
  const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
  return sum / placement.num_ranks / largest;
}

ExpertPlacement balanced_placement(const std::vector<int64_t>& loads, const ExpertPlacement& now) {
  CHECK(std::ssize(loads) == now.num_experts);
  Dealt dealt = deal(loads, now.num_slots(), now.num_ranks);
  const std::vector<int32_t> set_of = match_ranks(dealt, now);
  ExpertPlacement placement = {now.num_experts, now.num_ranks, {}};
  placement.expert_of.assign(now.expert_of.size(), -1);
  for (int32_t rank = 0; rank < now.num_ranks; ++rank) {
    const int32_t set = set_of[rank];
    const int64_t first = rank * now.slots_of_rank();
    for (int64_t slot = first; slot < first + now.slots_of_rank(); ++slot) {
      const int32_t expert = now.expert_of[slot];
      if (!dealt.has[set][expert]) continue;
      placement.expert_of[slot] = expert;
      dealt.take(set, expert, 0);
    }
    auto next = dealt.experts[set].begin();
    for (int64_t slot = first; slot < first + now.slots_of_rank(); ++slot) {
      if (placement.expert_of[slot] < 0) placement.expert_of[slot] = *next++;
    }
  }
  return balancedness(loads, placement) > balancedness(loads, now) ? placement : now;
}

std::vector<ExpertMove> plan_moves(const ExpertPlacement& before, const ExpertPlacement& after) {
  const auto slots = before.slots_of_experts();
  const auto rank_of = [&](int32_t slot) {
    return slot / static_cast<int32_t>(before.slots_of_rank());
  };
  std::vector<ExpertMove> pending;
  for (int32_t to = 0; to < before.num_slots(); ++to) {
    const int32_t expert = after.expert_of[to];
    if (before.expert_of[to] == expert) continue;
    const std::vector<int32_t>& from = slots[expert];
    const auto near = std::ranges::find(from, rank_of(to), rank_of);
    pending.push_back({near == from.end() ? from[to % from.size()] : *near, to});
  }
  std::vector<int32_t> num_readers(before.expert_of.size(), 0);
  for (const ExpertMove& move : pending) ++num_readers[move.from];
  std::vector<ExpertMove> moves;
  while (!pending.empty()) {
    const auto free = std::ranges::find_if(
        pending, [&](const ExpertMove& move) { return num_readers[move.to] == 0; });
    if (free != pending.end()) {
      if (free->from != ExpertMove::kAside) --num_readers[free->from];
      moves.push_back(*free);
      pending.erase(free);
      continue;
    }
    // What is left are cycles, each of whose slots one other reads: one slot's expert is put aside
    // for that one, and the rest of its cycle follows.
    const int32_t slot = pending.front().to;
    moves.push_back({slot, ExpertMove::kAside, rank_of(slot)});
    for (ExpertMove& move : pending) {
      if (move.from == slot) move = {ExpertMove::kAside, move.to, rank_of(slot)};
    }
    num_readers[slot] = 0;
  }
  return moves;
}

}  // namespace atom
