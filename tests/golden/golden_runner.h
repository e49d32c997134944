// Executes a Scheduler's steps like a ModelRunner, but computes the logits of every token and keeps
// them, so that tests can compare any position under any schedule. ATOM_TEST_DEVICE=cuda runs them
// on the GPU. The ranks that the flags ask for are threads; all of a copy of the model have to
// compute the same logits. Copies that share experts step together, with dummies where one has
// nothing to do.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "layers/moe/expert_balancer.h"
#include "models/causal_lm.h"
#include "runner/input_builder.h"
#include "runner/local_ranks.h"
#include "scheduler/scheduler.h"
#include "tests/golden/step_observer.h"

namespace atom {

struct Schedule {
  int32_t max_num_batched_tokens = 2048;
  int32_t max_num_seqs = 8;
  int32_t num_blocks = 512;
  bool enable_prefix_caching = false;
  int32_t block_size = 16;
  // Of models with recurrent states. Checkpoints are a block apart.
  int32_t num_state_slots = 24;
};

// What came of one sequence.
struct GoldenResult {
  std::map<int32_t, std::vector<float>> logits;  // position -> [vocab_size]
  std::vector<int32_t> output;                   // greedy continuation
};

class GoldenRunner {
 public:
  // Loads the checkpoint in `folder` under the flags of `engine`, whose block size is not used.
  static Result<std::unique_ptr<GoldenRunner>> create(const std::string& folder,
                                                      EngineConfig engine);

  // Runs all prompts together to `max_tokens` greedy tokens each, the copies taking turns with
  // them. The cache and the prefix cache live for one call; prompts of a later `wave` are added
  // when all of the earlier have finished.
  struct Request {
    std::vector<int32_t> prompt;
    int wave = 0;
    int copy = -1;  // that computes it; -1: its turn
  };
  std::vector<GoldenResult> run(const std::vector<Request>& requests,
                                const Schedule& schedule,
                                int32_t max_tokens);

  // Of the runs that follow. May be null; outlives them.
  void set_observer(StepObserver* observer) { observer_ = observer; }

  // Of a pool that holds a sequence of so many tokens under this schedule.
  int32_t fewest_blocks(const Schedule& schedule, int64_t num_tokens) const;
  // Layers with a window give back blocks.
  bool has_window() const { return config_.scheduler.kv_window > 0; }
  // The model keeps recurrent states.
  bool has_states() const { return ranks_.front()->storage_spec.has_states(); }

  // Of the last run, of the first copy.
  const SchedulerStats& stats() const { return stats_; }
  size_t num_copies() const { return static_cast<size_t>(local_ranks_->num_copies()); }
  // Between all ranks, since the beginning.
  uint64_t num_expert_moves() const;

 private:
  struct Rank {
    explicit Rank(int num_threads) : pool(num_threads) {}

    ThreadPool pool;
    DeviceRuntime* runtime = nullptr;    // null on the CPU
    std::unique_ptr<DeviceQueue> queue;  // likewise
    Stream stream{&pool};
    std::unique_ptr<CausalLM> model;
    StorageSpec storage_spec;
    LayerStorage storage;
    std::optional<InputBuilder> input_builder;
    std::optional<HostMirror> context_arrays;  // of ContextRows
    std::vector<FusedMoE*> moving_experts;
    std::unique_ptr<ExpertBalancer> expert_balancer;  // null unless experts may be moved
  };

  // One of the copies of the model, with ranks of its own.
  struct Copy {
    explicit Copy(const SchedulerConfig& config) : scheduler(config, {}) {}

    Scheduler scheduler;
    std::map<SequenceId, RunnerSequence> sequences;
    // Of the step that is computed.
    SchedulerOutput step;
    std::vector<RunnerSequence*> scheduled;
  };

  explicit GoldenRunner(ResolvedConfig config);

  SchedulerConfig scheduler_config(const Schedule& schedule) const;
  Status build_rank(int rank);
  void balance_experts();
  size_t copy_of(size_t rank) const;
  Tensor compute_logits(size_t rank, const Copy& copy) const;
  // Of each copy; those of its ranks are compared.
  std::vector<Tensor> compute_logits();

  void prepare(Copy& copy);
  ModelRunnerOutput take(Copy& copy, const Tensor& logits, std::vector<GoldenResult>& results);
  void step_together(std::vector<GoldenResult>& results);

  ResolvedConfig config_;
  std::unique_ptr<LocalRanks> local_ranks_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Copy>> copies_;
  int32_t block_size_ = 0;  // of the run
  SchedulerStats stats_;
  StepObserver* observer_ = nullptr;
};

}  // namespace atom
