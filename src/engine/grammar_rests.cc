#include "engine/grammar_rests.h"

#include <algorithm>

namespace atom {

using std::chrono::nanoseconds;

namespace {

// What a grammar's parser takes for a state, about.
constexpr nanoseconds kParserState{20};
// A sequence whose grammar takes longer for a token rests for so many times as long.
constexpr nanoseconds kSlowGrammar = std::chrono::milliseconds(1);
constexpr int64_t kRestShare = 20;
constexpr int64_t kMaxRestSteps = 1'000;

}  // namespace

void GrammarRests::note(nanoseconds duration, std::span<SequenceOutput> sequences) {
  if (sequences.empty()) return;
  int64_t most_work = 0;
  for (const SequenceOutput& sequence : sequences) {
    most_work = std::max(most_work, sequence.grammar_work);
  }
  const nanoseconds without =
      std::max({duration - kParserState * most_work, duration / 8, nanoseconds(1)});
  // The first step tells more than nothing does: a small start would have its sequences rest long.
  usual_step_ = usual_step_.count() == 0 ? without : usual_step_ + (without - usual_step_) / 8;
  if (kParserState * most_work < kSlowGrammar) return;
  for (SequenceOutput& sequence : sequences) {
    const nanoseconds work = kParserState * sequence.grammar_work;
    if (work < kSlowGrammar) continue;
    const int64_t num_steps = kRestShare * work / std::max(usual_step_, nanoseconds(1));
    sequence.num_steps_to_rest = static_cast<uint64_t>(std::min(num_steps, kMaxRestSteps));
  }
}

}  // namespace atom
