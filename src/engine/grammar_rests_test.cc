#include "engine/grammar_rests.h"

#include <gtest/gtest.h>

#include <vector>

namespace atom {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int64_t kStatesPerMillisecond = 50'000;  // of a parser, as GrammarState says

// The steps that each sequence of a step rests, by the milliseconds that its grammar took.
std::vector<uint64_t> rests_after(GrammarRests* rests,
                                  std::chrono::nanoseconds step,
                                  const std::vector<int64_t>& work) {
  std::vector<SequenceOutput> sequences(work.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].grammar_work = work[i] * kStatesPerMillisecond;
  }
  rests->note(step, sequences);
  std::vector<uint64_t> steps;
  for (const SequenceOutput& sequence : sequences) steps.push_back(sequence.num_steps_to_rest);
  return steps;
}

using Steps = std::vector<uint64_t>;

TEST(GrammarRests, ASlowTokenTakesATwentiethOfTheOthersTime) {
  GrammarRests rests;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(rests_after(&rests, milliseconds(10), {0, 0}), (Steps{0, 0}));
  }
  // 20 times 5 ms, in steps that take 10 ms without it.
  EXPECT_EQ(rests_after(&rests, milliseconds(15), {0, 5}), (Steps{0, 10}));
}

// Nothing is known before the first step: that step itself says what one takes.
TEST(GrammarRests, TheFirstTokenRestsByItsOwnStep) {
  GrammarRests rests;
  EXPECT_EQ(rests_after(&rests, milliseconds(6), {2}), Steps{10});
  GrammarRests other;
  // An eighth counts of a step that is said to be shorter than its grammars.
  EXPECT_EQ(rests_after(&other, milliseconds(8), {10}), Steps{200});
}

TEST(GrammarRests, RestsEnd) {
  GrammarRests rests;
  for (int i = 0; i < 50; ++i) rests_after(&rests, microseconds(100), {0});
  // An eighth of the way from 100 us to 12.5 ms is 1.6 ms: 1,200 steps without the limit.
  EXPECT_EQ(rests_after(&rests, milliseconds(100), {100}), Steps{1'000});
}

TEST(GrammarRests, AnEmptyStepSaysNothing) {
  GrammarRests rests;
  EXPECT_EQ(rests_after(&rests, microseconds(1), {}), Steps{});
  EXPECT_EQ(rests_after(&rests, milliseconds(6), {2}), Steps{10});
}

}  // namespace
}  // namespace atom
