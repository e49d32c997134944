// Conversations with a model that has recurrent states: what of their prompts is computed again.
// ATOM_CONVERSATIONS sets how many run side by side; tools/measure_prefix_cache.sh runs 64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "scheduler/scheduler_test_support.h"
#include "scheduler/simulated_model.h"
#include "scheduler/simulated_runner.h"

namespace atom {
namespace {

constexpr int kNumTurns = 8;
constexpr int32_t kPrefix = 4096;
constexpr int32_t kVocab = 1 << 20;  // so that nothing repeats by chance

struct Talk {
  const char* name;
  bool shares_prefix;
  int32_t question;  // tokens of a turn
  int32_t answer;
};

int32_t num_conversations() {
  const char* value = std::getenv("ATOM_CONVERSATIONS");
  return value == nullptr ? 6 : std::atoi(value);
}

SchedulerConfig talk_config(int32_t count, bool caches) {
  SchedulerConfig config;
  config.max_num_seqs = count;
  config.max_num_batched_tokens = 8192;
  config.max_model_len = 16384;
  config.num_blocks = count * 1024;
  config.enable_prefix_caching = caches;
  config.num_state_slots = 3 * count;
  config.state_checkpoint_interval = 8192;
  return config;
}

struct Outcome {
  int64_t num_prefill_tokens = 0;
  std::vector<std::vector<int32_t>> histories;  // of each conversation, all answers included
};

std::vector<int32_t> tokens_from(uint64_t seed, int32_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    seed = simulated_model::extend(seed, 1);
    token = static_cast<int32_t>(seed % kVocab);
  }
  return tokens;
}

void append_to(std::vector<int32_t>& to, const std::vector<int32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// One turn of all conversations at once.
void take_turn(Scheduler& scheduler, SimulatedRunner& runner, SequenceId first, Outcome& outcome) {
  while (scheduler.has_work()) {
    const SchedulerOutput output = scheduler.schedule();
    if (output.empty()) continue;
    for (const ScheduledSequence& scheduled : output.scheduled) {
      if (!scheduled.is_decode()) outcome.num_prefill_tokens += scheduled.num_new_tokens;
    }
    for (const SequenceUpdate& update : scheduler.postprocess(output, runner.execute(output))) {
      append_to(outcome.histories[update.id - first], update.token_ids);
    }
    ASSERT_EQ(runner.error(), "");
  }
}

Outcome converse(const Talk& talk, bool caches) {
  const int32_t count = num_conversations();
  const SchedulerConfig config = talk_config(count, caches);
  Scheduler scheduler(config, {});
  SimulatedRunner runner(config, {}, kVocab);
  Outcome outcome;
  for (int32_t i = 0; i < count; ++i) {
    outcome.histories.push_back(tokens_from(talk.shares_prefix ? 1 : 100 + i, kPrefix));
  }
  SequenceId next = 1;
  for (int turn = 0; turn < kNumTurns; ++turn) {
    const SequenceId first = next;
    for (std::vector<int32_t>& history : outcome.histories) {
      append_to(history, tokens_from(1000 + next, talk.question));
      EXPECT_TRUE(scheduler.add(next++, history, ask_for(talk.answer)).ok());
    }
    take_turn(scheduler, runner, first, outcome);
  }
  return outcome;
}

class SchedulerConversations : public testing::TestWithParam<Talk> {};

TEST_P(SchedulerConversations, ComputeLittleTwice) {
  const Outcome with = converse(GetParam(), true), without = converse(GetParam(), false);
  EXPECT_TRUE(with.histories == without.histories);
  const double part = static_cast<double>(with.num_prefill_tokens) /
                      static_cast<double>(without.num_prefill_tokens);
  fmt::print("{} conversations: {} of {} prefill tokens computed, {:.1f} %\n",
             num_conversations(),
             with.num_prefill_tokens,
             without.num_prefill_tokens,
             100 * part);
  EXPECT_LE(part, 0.15);
  // A prefix of one's own is computed once in any case.
  if (!GetParam().shares_prefix) {
    EXPECT_GT(part, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         SchedulerConversations,
                         testing::Values(Talk{"OwnPrefix", false, 128, 128},
                                         Talk{"LongAnswers", false, 100, 250},
                                         Talk{"SharedPrefix", true, 128, 128},
                                         Talk{"SharedPrefixShortAnswers", true, 60, 20}),
                         [](const testing::TestParamInfo<Talk>& talk) { return talk.param.name; });

}  // namespace
}  // namespace atom
