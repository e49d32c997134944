#include "engine/request_router.h"

#include <algorithm>

#include "base/check.h"

namespace atom {

RequestRouter::RequestRouter(int num_cores, DataParallelBalance balance)
    : balance_(balance), cores_(num_cores), last_choice_(num_cores - 1) {
  CHECK(num_cores >= 1);
}

bool RequestRouter::is_any_up() const {
  return std::ranges::any_of(cores_, [](const Core& core) { return core.is_up; });
}

void RequestRouter::set_up(int core) {
  cores_[core].is_up = true;
}

std::vector<SequenceId> RequestRouter::set_down(int core) {
  std::vector<SequenceId> lost;
  for (const auto& [id, place] : places_) {
    if (place.core == core) lost.push_back(id);
  }
  for (const SequenceId id : lost) places_.erase(id);
  cores_[core] = {};
  prefixes_.forget(core);
  return lost;
}

int64_t RequestRouter::load(const Core& core) const {
  switch (balance_) {
    case DataParallelBalance::kLeastRequests:
      return core.num_sequences;
    case DataParallelBalance::kLeastTokens:
      return core.num_tokens;
    case DataParallelBalance::kRoundRobin:
      return 0;
  }
  return 0;
}

int RequestRouter::choose() const {
  const int size = static_cast<int>(cores_.size());
  int best = -1;
  for (int i = 1; i <= size; ++i) {
    const int core = (last_choice_ + i) % size;
    if (!cores_[core].is_up) continue;
    if (best < 0 || load(cores_[core]) < load(cores_[best])) best = core;
  }
  CHECK(best >= 0);
  return best;
}

int RequestRouter::prefer(int best, std::span<const uint64_t> prefix) const {
  if (balance_ == DataParallelBalance::kRoundRobin || prefix.empty()) return best;
  int preferred = best;
  int64_t most = prefixes_.num_cached_tokens(best, prefix);
  for (int core = 0; core < std::ssize(cores_); ++core) {
    if (!cores_[core].is_up) continue;
    const int64_t num_saved = prefixes_.num_cached_tokens(core, prefix);
    const bool by_tokens = balance_ == DataParallelBalance::kLeastTokens;
    const int64_t slack = by_tokens ? num_saved : kPrefixSlack;
    if (num_saved <= most || load(cores_[core]) - load(cores_[best]) > slack) continue;
    most = num_saved;
    preferred = core;
  }
  return preferred;
}

int RequestRouter::route(std::span<const SequenceId> ids,
                         int64_t num_tokens,
                         std::span<const uint64_t> prefix) {
  const int best = choose();
  const int chosen = prefer(best, prefix);
  // The turns of idle cores go on only with those that were somebody's turn.
  last_choice_ = chosen == best ? best : last_choice_;
  prefixes_.note(chosen, prefix);
  Core& core = cores_[chosen];
  for (const SequenceId id : ids) {
    places_[id] = {chosen, num_tokens};
    ++core.num_sequences;
    core.num_tokens += num_tokens;
  }
  return chosen;
}

void RequestRouter::note(const StepOutput& step) {
  // Tokens are looked up only where they decide: this is the path of each of them.
  const bool counts_tokens = cores_.size() > 1 && balance_ == DataParallelBalance::kLeastTokens;
  for (const RequestDelta& delta : step.deltas) {
    if (!counts_tokens && delta.finish_reason == FinishReason::kNone) continue;
    const auto found = places_.find(delta.id);
    if (found == places_.end()) continue;
    Place& place = found->second;
    Core& core = cores_[place.core];
    const auto num_new = static_cast<int64_t>(delta.token_ids.size());
    place.num_tokens += num_new;
    core.num_tokens += num_new;
    if (delta.finish_reason == FinishReason::kNone) continue;
    --core.num_sequences;
    core.num_tokens -= place.num_tokens;
    places_.erase(found);
  }
}

std::optional<int> RequestRouter::core_of(SequenceId id) const {
  const auto found = places_.find(id);
  if (found == places_.end()) return std::nullopt;
  return found->second.core;
}

}  // namespace atom
