#include "engine/runner_group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runner/choose_device.h"

namespace atom {
namespace {

// The cores are shared out among the ranks.
ResolvedConfig config_of_rank(ResolvedConfig config, int rank, int world) {
  const int32_t threads = config.num_threads;
  config.num_threads = std::max(1, threads / world + (rank < threads % world ? 1 : 0));
  return config;
}

std::chrono::milliseconds patience(const ResolvedConfig& config) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(config.engine.supervision.step_timeout * 1000));
}

Status check_devices(const ResolvedConfig& config) {
  const ParallelConfig& parallel = config.engine.parallel;
  if (parallel.tensor_parallel_size == 1 && parallel.pipeline_parallel_size == 1 &&
      parallel.data_parallel_size == 1) {
    return {};
  }
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device));
  if (device.is_cpu()) return {};
  return unimplemented(
      "--tensor-parallel-size {}, --pipeline-parallel-size {} and --data-parallel-size {}: several "
      "GPUs are not supported yet; take --device cpu",
      parallel.tensor_parallel_size,
      parallel.pipeline_parallel_size,
      parallel.data_parallel_size);
}

}  // namespace

Result<std::unique_ptr<RunnerGroup>> RunnerGroup::create(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder) {
  auto ranks = std::make_shared<LocalRanks>(config.engine.parallel, patience(config));
  return create_copy(config, num_sampled_ids, progress, recorder, std::move(ranks), /*copy=*/0);
}

Result<std::unique_ptr<RunnerGroup>> RunnerGroup::create_copy(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder,
    std::shared_ptr<LocalRanks> shared_ranks,
    int copy) {
  LocalRanks& ranks = *shared_ranks;
  if (const Status status = check_devices(config); !status.ok()) {
    ranks.fail(status);
    return status;
  }
  std::unique_ptr<RunnerGroup> group(new RunnerGroup());
  group->local_ranks_ = std::move(shared_ranks);
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
  RETURN_IF_ERROR(group->status());
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  group->plan_ = runners.front()->memory_plan();
  for (int rank = 0; rank < world; ++rank) {
    const bool answers = rank == 0;
    group->ranks_.push_back(std::make_unique<RunnerThread>(std::move(runners[rank]), answers));
  }
  return group;
}

RunnerGroup::~RunnerGroup() {
  // A rank may have taken a step that another one drops.
  local_ranks_->fail(unavailable("the engine is stopping"));
  for (const auto& rank : ranks_) rank->stop();
}

void RunnerGroup::submit(SchedulerOutput step) {
  const auto shared = std::make_shared<const SchedulerOutput>(std::move(step));
  for (const auto& rank : ranks_) rank->submit(shared);
}

std::optional<RunnerGroup::Completed> RunnerGroup::wait_until(Clock::time_point deadline) {
  return ranks_.front()->wait_until(deadline);
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

}  // namespace atom
