// Test support: a scheduler and a runner, as an engine core couples them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "models/registry.h"
#include "runner/local_ranks.h"
#include "runner/model_runner.h"
#include "runner/runner_requests_test.h"
#include "scheduler/scheduler.h"
#include "tests/support/test_folders.h"

namespace atom {

using std::chrono::nanoseconds;

inline constexpr int32_t kMaxModelLen = 256;

class Engine {
 public:
  Engine(const EngineConfig& engine, DeviceChoice device, SpanRecorder* recorder = nullptr);

  // `due` says how many requests have arrived by a step.
  std::vector<Answer> run(const std::vector<Request>& requests,
                          const std::function<size_t(uint64_t step)>& due) {
    answers_.assign(requests.size(), {});
    size_t num_added = 0;
    while (num_added < requests.size() || scheduler_->has_work()) {
      for (; num_added < std::min(requests.size(), due(num_steps_)); ++num_added) {
        const Request& request = requests[num_added];
        const SequenceId id = first_id_ + num_added;
        CHECK(scheduler_->add(id, request.prompt, request.sampling, request.grammar).ok());
      }
      submit();
      if (steps_.empty()) {
        ++num_steps_;
      } else {
        collect(requests);
      }
    }
    first_id_ += requests.size();
    EXPECT_EQ(runner_->num_device_allocations(), num_allocations_);
    return std::move(answers_);
  }

  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_overlapped() const { return num_overlapped_; }
  SchedulerStats stats() const { return scheduler_->stats(); }
  const MemoryPlan& memory_plan() const { return runner_->memory_plan(); }
  // One for each step that executed something.
  const std::vector<nanoseconds>& durations() const { return durations_; }
  const std::vector<nanoseconds>& waits() const { return waits_; }

 private:
  void submit() {
    while (scheduler_->can_schedule() && runner_->can_submit()) {
      SchedulerOutput step = scheduler_->schedule();
      if (step.empty()) return;
      num_overlapped_ += steps_.empty() ? 0 : 1;
      on_other_ranks(
          [&](size_t i) {
            others_[i]->submit(step);
            (void)others_[i]->collect();
          },
          [&] { runner_->submit(step); });
      // Several ranks, on the CPU, have computed it now; the scheduler hears of it in its time.
      if (!others_.empty()) collected_.push_back(runner_->collect());
      steps_.push_back(std::move(step));
    }
  }

  // Each on a thread of its own, since they wait for each other.
  void on_other_ranks(const std::function<void(size_t i)>& run,
                      const std::function<void()>& on_first) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < others_.size(); ++i) threads.emplace_back(run, i);
    on_first();
    for (std::thread& thread : threads) thread.join();
  }

  void collect(const std::vector<Request>& requests) {
    ModelRunner::Collected collected = next_collected();
    if (!steps_.front().scheduled.empty()) {
      durations_.push_back(collected.duration);
      waits_.push_back(collected.wait);
    }
    for (SequenceUpdate& update :
         scheduler_->postprocess(steps_.front(), std::move(collected.output))) {
      Answer& answer = answers_[update.id - first_id_];
      append(answer.token_ids, update.token_ids);
      append(answer.logprobs, update.logprobs);
      append(answer.prompt_logprobs, update.prompt_logprobs);
      answer.error += update.error;
      answer.finished = update.finish_reason != FinishReason::kNone;
      const Request& request = requests[update.id - first_id_];
      if (request.aborts && !answer.finished && !answer.token_ids.empty()) {
        scheduler_->abort(update.id);
      }
    }
    steps_.pop_front();
    ++num_steps_;
  }

  ModelRunner::Collected next_collected() {
    if (collected_.empty()) return runner_->collect();
    ModelRunner::Collected collected = std::move(collected_.front());
    collected_.pop_front();
    return collected;
  }

  template <typename T>
  static void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  std::unique_ptr<LocalRanks> ranks_;
  std::unique_ptr<ModelRunner> runner_;               // of the rank that answers
  std::vector<std::unique_ptr<ModelRunner>> others_;  // of the other ranks
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<SchedulerOutput> steps_;
  std::deque<ModelRunner::Collected> collected_;  // of several ranks: of the first of `steps_`
  std::vector<nanoseconds> durations_, waits_;
  std::vector<Answer> answers_;
  SequenceId first_id_ = 1;
  uint64_t num_steps_ = 0;
  uint64_t num_overlapped_ = 0;
  int64_t num_allocations_ = 0;
};

}  // namespace atom
