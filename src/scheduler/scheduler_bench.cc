// Host cost of one step: schedule() and postprocess() of decoding sequences.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace atom {
namespace {

constexpr int32_t kPromptTokens = 512;
constexpr int32_t kMaxTokens = 3000;

SchedulerConfig bench_config(int32_t num_sequences) {
  SchedulerConfig config;
  config.max_num_seqs = num_sequences;
  config.max_num_batched_tokens = num_sequences * kPromptTokens;
  config.max_model_len = 4096;
  config.num_blocks = num_sequences * 256;
  config.max_steps_in_flight = 2;
  return config;
}

void add_requests(Scheduler& scheduler, int32_t num_sequences, SequenceId& next_id) {
  SamplingParams sampling;
  sampling.seed = 1;
  sampling.max_tokens = kMaxTokens;
  for (int32_t i = 0; i < num_sequences; ++i) {
    std::vector<int32_t> prompt(kPromptTokens, static_cast<int32_t>(next_id));
    if (!scheduler.add(next_id++, std::move(prompt), sampling).ok()) std::abort();
  }
}

ModelRunnerOutput answer_to(const SchedulerOutput& output) {
  ModelRunnerOutput answer{.step = output.step, .sequences = {}};
  answer.sequences.reserve(output.scheduled.size());
  for (const ScheduledSequence& scheduled : output.scheduled) {
    SequenceOutput& sequence = answer.sequences.emplace_back();
    sequence.id = scheduled.id;
    if (scheduled.samples()) sequence.token_ids = {100};
  }
  return answer;
}

// range(0) sequences decode, range(1) more wait behind them. The runner's answer is not timed.
void decode_step(benchmark::State& state) {
  const auto num_sequences = static_cast<int32_t>(state.range(0));
  SchedulerConfig config = bench_config(num_sequences);
  config.max_num_waiting = num_sequences + static_cast<int32_t>(state.range(1));
  Scheduler scheduler(config, {2});
  SequenceId next_id = 1;
  add_requests(scheduler, num_sequences + static_cast<int32_t>(state.range(1)), next_id);
  SchedulerOutput in_flight = scheduler.schedule();
  for (auto _ : state) {
    ModelRunnerOutput answer = answer_to(in_flight);
    const int32_t num_before = scheduler.stats().num_running;
    const auto begin = std::chrono::steady_clock::now();
    SchedulerOutput next = scheduler.schedule();
    std::vector<SequenceUpdate> updates = scheduler.postprocess(in_flight, std::move(answer));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(elapsed.count());
    benchmark::DoNotOptimize(updates.data());
    in_flight = std::move(next);
    if (scheduler.stats().num_running < num_before || in_flight.scheduled.empty()) {
      scheduler.reset();
      add_requests(scheduler, num_sequences + static_cast<int32_t>(state.range(1)), next_id);
      in_flight = scheduler.schedule();
    }
  }
}
BENCHMARK(decode_step)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Args({1, 0})
    ->Args({64, 0})
    ->Args({64, 4096})
    ->Args({256, 0});

}  // namespace
}  // namespace atom
