#include "engine/runner_group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/local/local_group.h"
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

Status check_devices(const ResolvedConfig& config, int world) {
  const int32_t num_copies = config.engine.parallel.data_parallel_size;
  if (world == 1 && num_copies == 1) return {};
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device));
  if (device.is_cpu()) return {};
  return unimplemented(
      "--tensor-parallel-size {} and --data-parallel-size {}: several GPUs are not supported yet; "
      "take --device cpu",
      world,
      num_copies);
}

}  // namespace

Result<std::unique_ptr<RunnerGroup>> RunnerGroup::create(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder) {
  const int world = config.engine.parallel.tensor_parallel_size;
  RETURN_IF_ERROR(check_devices(config, world));
  std::unique_ptr<RunnerGroup> group(new RunnerGroup());
  if (world > 1) group->communicators_ = make_local_group(world, patience(config));
  std::vector<std::unique_ptr<ModelRunner>> runners(world);
  std::vector<Status> statuses(world);
  const auto create_rank = [&](int rank) {
    Communicator* communicator = world > 1 ? group->communicators_[rank].get() : nullptr;
    Result<std::unique_ptr<ModelRunner>> runner =
        ModelRunner::create(config_of_rank(config, rank, world),
                            num_sampled_ids,
                            rank == 0 ? progress : nullptr,
                            rank == 0 ? recorder : nullptr,
                            parallel_context(config, rank, communicator));
    statuses[rank] = runner.status();
    if (runner.ok()) {
      runners[rank] = std::move(runner).value();
    } else if (communicator != nullptr) {
      communicator->fail(runner.status());
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
  if (!communicators_.empty()) communicators_.front()->fail(unavailable("the engine is stopping"));
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

Status RunnerGroup::status() const {
  return communicators_.empty() ? Status() : communicators_.front()->status();
}

}  // namespace atom
