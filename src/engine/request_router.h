// Which of several engine cores computes a request, and which one that was. A request stays with
// its core for life, all of its answers with the same one, so that they share their prompt.
//
// A request whose prompt begins as an earlier one did goes to the core that has computed that, as
// long as this core has not much more to do than the one that balance alone would choose: by
// requests at most kPrefixSlack more, by tokens no more than are saved. Round robin has no
// favorites.
//
// Host logic without threads: whoever owns it guards it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "config/engine_config.h"
#include "engine/messages.h"
#include "engine/prefix_places.h"

namespace atom {

class RequestRouter {
 public:
  static constexpr int64_t kPrefixSlack = 4;

  // No core is up.
  RequestRouter(int num_cores, DataParallelBalance balance);

  bool is_any_up() const;
  void set_up(int core);
  // Returns the sequences that it had, which are forgotten.
  std::vector<SequenceId> set_down(int core);

  // Chooses a core for one request's sequences of `num_tokens` each, whose prompt has the
  // prefix_hashes() `prefix`; none where nothing is to be shared. Needs is_any_up().
  int route(std::span<const SequenceId> ids,
            int64_t num_tokens,
            std::span<const uint64_t> prefix = {});
  // News of sequences: their tokens count, finished ones are forgotten.
  void note(const StepOutput& step);
  // The core of a sequence; none when it has finished.
  std::optional<int> core_of(SequenceId id) const;

 private:
  struct Core {
    bool is_up = false;
    int64_t num_sequences = 0;
    int64_t num_tokens = 0;
  };
  struct Place {
    int core = 0;
    int64_t num_tokens = 0;
  };

  int64_t load(const Core& core) const;
  // The first of the least loaded, from the core after the last choice on, so that idle cores take
  // turns.
  int choose() const;
  // Instead of `best`, which balance alone chooses.
  int prefer(int best, std::span<const uint64_t> prefix) const;

  const DataParallelBalance balance_;
  std::vector<Core> cores_;
  std::unordered_map<SequenceId, Place> places_;  // of unfinished sequences
  PrefixPlaces prefixes_;
  int last_choice_;
};

}  // namespace atom
