#include "cli/bench_ranks.h"

#include <thread>
#include <utility>

#include "engine/runner_group.h"

namespace atom::cli {

Result<std::unique_ptr<BenchRanks>> BenchRanks::create(const ResolvedConfig& config) {
  const ParallelConfig& parallel = config.engine.parallel;
  if (parallel.pipeline_parallel_size > 1 || parallel.data_parallel_size > 1) {
    return unimplemented(
        "--pipeline-parallel-size {} and --data-parallel-size {}: steps of one stage of one copy "
        "are measured; expected 1 each",
        parallel.pipeline_parallel_size,
        parallel.data_parallel_size);
  }
  std::unique_ptr<BenchRanks> ranks(new BenchRanks());
  ASSIGN_OR_RETURN(ranks->ranks_, make_local_ranks(config));
  const int world = ranks->ranks_->size();
  std::vector<Result<std::unique_ptr<ModelRunner>>> runners;
  for (int rank = 0; rank < world; ++rank) runners.emplace_back(nullptr);
  const auto create_rank = [&](int rank) {
    runners[rank] = ModelRunner::create(config_of_rank(config, rank, world),
                                        config.model.vocab_size,
                                        nullptr,
                                        nullptr,
                                        ranks->ranks_->context(rank));
    if (!runners[rank].ok()) ranks->ranks_->fail(runners[rank].status());
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < world; ++rank) threads.emplace_back(create_rank, rank);
  create_rank(0);
  for (std::thread& thread : threads) thread.join();
  RETURN_IF_ERROR(ranks->ranks_->status());
  for (const auto& runner : runners) RETURN_IF_ERROR(runner.status());
  ranks->first_ = std::move(runners.front()).value();
  for (int rank = 1; rank < world; ++rank) {
    ranks->others_.push_back(
        std::make_unique<RunnerThread>(std::move(runners[rank]).value(), /*answers=*/false));
  }
  return ranks;
}

BenchRanks::~BenchRanks() {
  if (ranks_ != nullptr) ranks_->fail(unavailable("the measurement has ended"));
  for (const auto& rank : others_) rank->stop();
}

std::chrono::nanoseconds BenchRanks::run(const SchedulerOutput& step) {
  const auto shared = std::make_shared<const SchedulerOutput>(step);
  for (const auto& rank : others_) rank->submit(shared);
  first_->submit(step);
  return first_->collect().duration;
}

}  // namespace atom::cli
