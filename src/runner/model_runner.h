// Runs a model on one device: builds it, loads it, and executes the steps that a Scheduler orders,
// one after the other. Knows about tokens, blocks and logits; nothing about requests or text.
// create() may run on any thread; execute() always on the one that owns the runner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "models/causal_lm.h"
#include "runner/decode_graphs.h"
#include "runner/device_sampler.h"
#include "runner/host_mirror.h"
#include "runner/input_builder.h"
#include "runner/memory_plan.h"
#include "runner/model_source.h"
#include "runner/runner_sequence.h"
#include "sampling/sampler.h"
#include "scheduler/scheduler_output.h"
#include "tensor/device_arena.h"
#include "tensor/operator_trace.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

class ModelRunner {
 public:
  // Plans memory, loads the checkpoint (or dummy weights) and allocates everything that steps need.
  // `num_sampled_ids`: ids at and above are never sampled (rows of padding in the head). `trace`
  // notes the operators of steps that are not recorded, and outlives the runner.
  static Result<std::unique_ptr<ModelRunner>> create(const ResolvedConfig& config,
                                                     int64_t num_sampled_ids,
                                                     const LoadProgress& progress,
                                                     OperatorTrace* trace = nullptr);

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

  // On a device: takes all memory of the plan at once and makes the stream.
  Status reserve(DeviceRuntime& runtime);
  void record_graphs();
  // A decode step of `batch` rows, whose inputs the builder has sent.
  DecodeOutputs decode(const StepInputs& inputs);
  // The recorded step that does what `step` asks, or null.
  const DecodeGraphs::Graph* recorded(const SchedulerOutput& step,
                                      std::span<const LogitsRow> rows) const;
  ForwardContext context_of(const StepInputs& inputs);

  void update_sequences(const SchedulerOutput& step);
  std::vector<LogitsRow> select_rows(const SchedulerOutput& step) const;
  // Any step, operator by operator.
  void forward(const SchedulerOutput& step,
               std::span<const LogitsRow> rows,
               ModelRunnerOutput* output);
  // Logits of rows [begin, end) of `rows`, all of one kind, then what they are for.
  void run_rows(std::span<const LogitsRow> rows,
                const Tensor& hidden,
                const ForwardContext& context,
                ModelRunnerOutput* output);
  // On a device, what DeviceSampler::choose_largest() chose of the logits is there.
  void sample_rows(std::span<const LogitsRow> rows,
                   const Tensor& logits,
                   ModelRunnerOutput* output);
  void score_rows(std::span<const LogitsRow> rows, const Tensor& logits, ModelRunnerOutput* output);

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<DeviceQueue> queue_;  // null on the CPU, like the arena
  std::unique_ptr<DeviceArena> arena_;
  Stream stream_;
  std::unique_ptr<CausalLM> model_;
  MemoryPlan plan_;
  std::vector<KVCacheView> kv_caches_;
  Workspace workspace_;
  std::optional<InputBuilder> input_builder_;
  std::optional<HostMirror> row_ids_;  // rows of hidden states that get logits
  Sampler sampler_;
  std::optional<DeviceSampler> device_sampler_;
  DecodeGraphs graphs_;
  std::unordered_map<SequenceId, RunnerSequence> sequences_;
  std::vector<RunnerSequence*> scheduled_;  // of the current step, in its order
};

}  // namespace atom
