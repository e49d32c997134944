// Runs a model on one device: builds it, loads it, and executes the steps that a Scheduler orders,
// one after the other. Knows about tokens, blocks and logits; nothing about requests or text.
// create() may run on any thread; execute() always on the one that owns the runner.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "models/causal_lm.h"
#include "runner/input_builder.h"
#include "runner/memory_plan.h"
#include "runner/model_source.h"
#include "runner/runner_sequence.h"
#include "sampling/sampler.h"
#include "scheduler/scheduler_output.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

class ModelRunner {
 public:
  // Plans memory, loads the checkpoint (or dummy weights) and allocates everything that steps need.
  // `num_sampled_ids`: ids at and above are never sampled (rows of padding in the head).
  static Result<std::unique_ptr<ModelRunner>> create(const ResolvedConfig& config,
                                                     int64_t num_sampled_ids,
                                                     const LoadProgress& progress);

  const MemoryPlan& memory_plan() const { return plan_; }

  // Grows while a step executes, at least once per operator. From any thread.
  uint64_t progress() const { return pool_->progress(); }

  // Steps come in the order of SchedulerOutput::step. A sequence whose logits admit no choice gets
  // an error in its output; nothing else fails.
  ModelRunnerOutput execute(const SchedulerOutput& step);

 private:
  struct LogitsRow {
    size_t sequence = 0;  // index into SchedulerOutput::scheduled
    int32_t hidden_row = 0;
    int32_t scored_token = -1;  // the prompt token that this row predicts; -1: sample from the row
  };

  ModelRunner(const ResolvedConfig& config, int64_t num_sampled_ids);

  void update_sequences(const SchedulerOutput& step);
  std::vector<LogitsRow> select_rows(const SchedulerOutput& step) const;
  // Logits of rows [begin, end) of `rows`, all of one kind, then what they are for.
  void run_rows(std::span<const LogitsRow> rows,
                const Tensor& hidden,
                const ForwardContext& context,
                ModelRunnerOutput* output);
  void sample_rows(std::span<const LogitsRow> rows,
                   const Tensor& logits,
                   ModelRunnerOutput* output);
  void score_rows(std::span<const LogitsRow> rows, const Tensor& logits, ModelRunnerOutput* output);

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  std::unique_ptr<ThreadPool> pool_;
  Stream stream_;
  std::unique_ptr<CausalLM> model_;
  MemoryPlan plan_;
  std::vector<KVCacheView> kv_caches_;
  Workspace workspace_;
  InputBuilder input_builder_;
  Sampler sampler_;
  std::unordered_map<SequenceId, RunnerSequence> sequences_;
  std::vector<RunnerSequence*> scheduled_;  // of the current step, in its order
  std::vector<int32_t> row_ids_;            // reused between steps
};

}  // namespace atom
