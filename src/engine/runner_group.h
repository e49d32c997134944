// The runners of one engine core: one for each rank, on a thread of its own. All take the same
// steps, by reference; the first of the last stage answers. Ranks of that stage compute the same
// choices from the same logits, and stages before it are told by later steps what was chosen, so
// nothing but collectives and hidden states pass between them. A stage goes on with the next step
// as soon as it has handed one on.
//
// Ranks of a copy may be spread over nodes (config/nodes_config.h): then each of its nodes has such
// a group of its own ranks, and that of the first sends the others its steps.
//
// Where one rank cannot go on the others do not wait for it: status() says why from then on, and
// what steps still give is without meaning.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/runner_thread.h"
#include "engine/step_channel.h"
#include "runner/local_ranks.h"
#include "runner/node_ranks.h"

namespace atom {

// The ranks of one engine core, or of all copies that share their experts, with their devices; not
// of several nodes. An error where there are too few cards, or no way between them.
Result<std::shared_ptr<LocalRanks>> make_local_ranks(const ResolvedConfig& config);

// Those of this node, of several. Other nodes are waited for as long as `go_on`, asked several
// times a second, says so; null: for ever.
Result<std::shared_ptr<NodeRanks>> make_node_ranks(const ResolvedConfig& config,
                                                   int64_t num_sampled_ids,
                                                   const std::function<bool()>& go_on);

// That of one of `world` ranks: the cores are shared out among them.
ResolvedConfig config_of_rank(ResolvedConfig config, int rank, int world);

class RunnerGroup {
 public:
  using Clock = RunnerThread::Clock;
  using Completed = RunnerThread::Completed;

  // As ModelRunner::create(), of all ranks at once; progress is that of the first. `recorder`,
  // which may be null, is told of the first rank's steps. `go_on`: as of make_node_ranks().
  static Result<std::unique_ptr<RunnerGroup>> create(
      const ResolvedConfig& config,
      int64_t num_sampled_ids,
      const std::function<void(const StartProgress&)>& progress,
      SpanRecorder* recorder,
      const std::function<bool()>& go_on = nullptr);
  // The same for copy `copy` of those whose ranks are all in `ranks`. All copies at once, each on a
  // thread of its own.
  static Result<std::unique_ptr<RunnerGroup>> create_copy(
      const ResolvedConfig& config,
      int64_t num_sampled_ids,
      const std::function<void(const StartProgress&)>& progress,
      SpanRecorder* recorder,
      std::shared_ptr<LocalRanks> ranks,
      int copy);
  // Ends after the steps that are running, with several ranks in the middle of them.
  ~RunnerGroup();

  // The same for each rank.
  const MemoryPlan& memory_plan() const { return plan_; }

  void submit(SchedulerOutput step);
  // Called on the head: the engine ends for good, so other nodes need not wait for another.
  void end();
  // Called on other nodes of the copy: takes its steps until the group fails, says why.
  // `add_grammars` completes a step by what does not travel.
  Status follow(const std::function<Status(SchedulerOutput*)>& add_grammars);
  // Ends that, and the group. From any thread.
  void fail(const Status& reason) { local_ranks_->fail(reason); }
  // See RunnerThread.
  std::optional<Completed> wait_until(Clock::time_point deadline);
  size_t num_in_flight() const { return ranks_[answering_]->num_in_flight(); }
  // Sums over all ranks.
  uint64_t progress() const;
  int64_t num_device_allocations() const;
  ExpertBalancer::Figures expert_figures() const;

  // Why the ranks cannot go on together.
  Status status() const { return local_ranks_->status(); }

 private:
  RunnerGroup() = default;

  // Makes the runners of the ranks of one copy, and their threads.
  Status start(const ResolvedConfig& config,
               int64_t num_sampled_ids,
               const std::function<void(const StartProgress&)>& progress,
               SpanRecorder* recorder,
               int copy);

  MemoryPlan plan_;
  std::shared_ptr<LocalRanks> local_ranks_;  // of all copies that are here
  std::unique_ptr<StepChannel> channel_;     // between the nodes of the copy; null for one
  int answering_ = 0;
  std::vector<std::unique_ptr<RunnerThread>> ranks_;
};

}  // namespace atom
