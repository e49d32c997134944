#include "engine/runner_group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/node_mesh.h"
#include "runner/choose_device.h"
#include "runner/node_plan.h"

namespace atom {
namespace {

std::chrono::milliseconds patience(const ResolvedConfig& config) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(config.engine.supervision.step_timeout * 1000));
}

}  // namespace

ResolvedConfig config_of_rank(ResolvedConfig config, int rank, int world) {
  const int32_t threads = config.num_threads;
  config.num_threads = std::max(1, threads / world + (rank < threads % world ? 1 : 0));
  return config;
}

Result<std::shared_ptr<LocalRanks>> make_local_ranks(const ResolvedConfig& config) {
  const EngineConfig& engine = config.engine;
  ASSIGN_OR_RETURN(const Device first, choose_device(engine.device));
  RETURN_IF_ERROR(check_cards(config, first));
  ASSIGN_OR_RETURN(
      std::unique_ptr<LocalRanks> ranks,
      LocalRanks::create(engine.parallel, first, patience(config), config.copies_share_experts));
  return std::shared_ptr<LocalRanks>(std::move(ranks));
}

Result<std::shared_ptr<NodeRanks>> make_node_ranks(const ResolvedConfig& config,
                                                   int64_t num_sampled_ids,
                                                   const std::function<bool()>& go_on) {
  ASSIGN_OR_RETURN(const Device first, choose_device(config.engine.device));
  RETURN_IF_ERROR(check_cards(config, first));
  ASSIGN_OR_RETURN(const std::string kind, kind_of(first));
  ASSIGN_OR_RETURN(const MeshOptions mesh, node_mesh(config, num_sampled_ids, kind, go_on));
  return NodeRanks::form(config, first, patience(config), mesh);
}

Result<std::unique_ptr<RunnerGroup>> RunnerGroup::create(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder,
    const std::function<bool()>& go_on) {
  std::shared_ptr<LocalRanks> ranks;
  if (config.engine.nodes.num_nodes > 1) {
    ASSIGN_OR_RETURN(ranks, make_node_ranks(config, num_sampled_ids, go_on));
  } else {
    ASSIGN_OR_RETURN(ranks, make_local_ranks(config));
  }
  return create_copy(config, num_sampled_ids, progress, recorder, std::move(ranks), /*copy=*/0);
}

Result<std::unique_ptr<RunnerGroup>> RunnerGroup::create_copy(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder,
    std::shared_ptr<LocalRanks> ranks,
    int copy) {
  std::unique_ptr<RunnerGroup> group(new RunnerGroup());
  group->local_ranks_ = std::move(ranks);
  if (Communicator* const steps = group->local_ranks_->steps()) {
    group->channel_ = std::make_unique<StepChannel>(steps);
  }
  // A node's ranks begin with those of the last stage that it has.
  const ParallelConfig& parallel = config.engine.parallel;
  const bool has_nodes = config.engine.nodes.num_nodes > 1;
  group->answering_ = has_nodes ? 0 : parallel.ranks_of_copy() - parallel.ranks_of_stage();
  const Status status = group->start(config, num_sampled_ids, progress, recorder, copy);
  if (!status.ok()) {
    group->fail(status);
    return status;
  }
  return group;
}

Status RunnerGroup::start(const ResolvedConfig& config,
                          int64_t num_sampled_ids,
                          const std::function<void(const StartProgress&)>& progress,
                          SpanRecorder* recorder,
                          int copy) {
  LocalRanks& ranks = *local_ranks_;
  const int world = ranks.size() / ranks.num_copies();
  const int first = copy * world;
  std::vector<std::unique_ptr<ModelRunner>> runners(world);
  std::vector<Status> statuses(world);
  const auto create_rank = [&](int rank) {
    Result<std::unique_ptr<ModelRunner>> runner =
        ModelRunner::create(config_of_rank(config, rank, world),
                            num_sampled_ids,
                            rank == 0 ? progress : nullptr,
                            rank == 0 ? recorder : nullptr,
                            ranks.context(first + rank));
    statuses[rank] = runner.status();
    if (runner.ok()) {
      runners[rank] = std::move(runner).value();
    } else {
      ranks.fail(runner.status());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < world; ++rank) threads.emplace_back(create_rank, rank);
  create_rank(0);
  for (std::thread& thread : threads) thread.join();
  // The first that failed has told all others why.
  RETURN_IF_ERROR(status());
  for (const Status& of_rank : statuses) RETURN_IF_ERROR(of_rank);
  // What a node has still to load the first step should not have to wait for.
  if (channel_ != nullptr) channel_->meet();
  RETURN_IF_ERROR(status());
  plan_ = runners.front()->memory_plan();
  const bool leads = NodePlan(config).leads(config.engine.nodes.node_rank);
  for (int rank = 0; rank < world; ++rank) {
    const bool answers = rank == answering_ && leads;
    ranks_.push_back(std::make_unique<RunnerThread>(std::move(runners[rank]), answers));
  }
  return {};
}

RunnerGroup::~RunnerGroup() {
  // A rank may have taken a step that another one drops.
  local_ranks_->fail(unavailable("the engine is stopping"));
  for (const auto& rank : ranks_) rank->stop();
}

void RunnerGroup::submit(SchedulerOutput step) {
  const auto shared = std::make_shared<const SchedulerOutput>(std::move(step));
  if (channel_ != nullptr) channel_->send(*shared);
  for (const auto& rank : ranks_) rank->submit(shared);
}

void RunnerGroup::end() {
  if (channel_ != nullptr) local_ranks_->fail(Status(StatusCode::kAborted, "the head has ended"));
}

Status RunnerGroup::follow(const std::function<Status(SchedulerOutput*)>& add_grammars) {
  while (std::optional<SchedulerOutput> step = channel_->receive()) {
    if (const Status added = add_grammars(&*step); !added.ok()) {
      fail(added);
      break;
    }
    const auto shared = std::make_shared<const SchedulerOutput>(std::move(*step));
    for (const auto& rank : ranks_) rank->submit(shared);
    RETURN_IF_ERROR(status());
  }
  return status();
}

std::optional<RunnerGroup::Completed> RunnerGroup::wait_until(Clock::time_point deadline) {
  return ranks_[answering_]->wait_until(deadline);
}

uint64_t RunnerGroup::progress() const {
  uint64_t progress = 0;
  for (const auto& rank : ranks_) progress += rank->progress();
  return progress;
}

int64_t RunnerGroup::num_device_allocations() const {
  int64_t count = 0;
  for (const auto& rank : ranks_) count += rank->num_device_allocations();
  return count;
}

ExpertBalancer::Figures RunnerGroup::expert_figures() const {
  ExpertBalancer::Figures sum;
  for (const auto& rank : ranks_) {
    const ExpertBalancer::Figures figures = rank->expert_figures();
    sum.num_tokens += figures.num_tokens;
    sum.num_largest_tokens += figures.num_largest_tokens;
    sum.num_moves += figures.num_moves;
  }
  return sum;
}

}  // namespace atom
