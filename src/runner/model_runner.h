// Runs a model on one device: builds it, loads it, and executes the steps that a Scheduler orders,
// one after the other. Knows about tokens, blocks and logits; nothing about requests or text.
//
// On a device submit() only enqueues: a step takes the tokens that the one before it chose from
// where they are, and may be submitted before the host knows them. So the device always has the
// next step before it ends one. On the CPU submit() computes. With drafts it does on a device, too:
// how many are right, which the host finds out, decides what the draft model computes, and what the
// scheduler orders next.
//
// create() may run on any thread; the rest always on the one that owns the runner, unless it says
// otherwise.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/span_recorder.h"
#include "base/status.h"
#include "config/resolve.h"
#include "layers/moe/expert_balancer.h"
#include "models/causal_lm.h"
#include "nn/forward_observer.h"
#include "runner/decode_graphs.h"
#include "runner/device_sampler.h"
#include "runner/drafter.h"
#include "runner/grammar_masks.h"
#include "runner/head_rows.h"
#include "runner/input_builder.h"
#include "runner/memory_plan.h"
#include "runner/model_source.h"
#include "runner/sequence_table.h"
#include "runner/step_in_flight.h"
#include "sampling/rejection_sampler.h"
#include "sampling/sampler.h"
#include "scheduler/scheduler_output.h"
#include "tensor/device_arena.h"
#include "tensor/host_mirror.h"
#include "tensor/operator_trace.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

// How far create() is.
struct StartProgress {
  // kGraphs: on a device, steps of each batch size are tuned and recorded.
  enum class Stage { kWeights, kGraphs };
  Stage stage = Stage::kWeights;
  uint64_t done = 0;  // bytes of weights; steps that were tuned or recorded
  uint64_t total = 0;
};

class ModelRunner {
 public:
  // Plans memory, loads the checkpoint (or dummy weights), allocates everything that steps need and
  // records decode steps. `progress` may be null.
  // `num_sampled_ids`: ids at and above are never sampled (rows of padding in the head).
  // `recorder`, which may be null, is told of steps while it is on, and outlives the runner.
  // `parallel`: which of the configuration's ranks it is. All ranks are created at once, each on a
  // thread of its own, and take the same steps; their communicators outlive them.
  static Result<std::unique_ptr<ModelRunner>> create(
      const ResolvedConfig& config,
      int64_t num_sampled_ids,
      const std::function<void(const StartProgress&)>& progress,
      SpanRecorder* recorder = nullptr,
      const ParallelContext& parallel = {});
  // Waits for the device.
  ~ModelRunner();

  const MemoryPlan& memory_plan() const { return plan_; }
  // Notes the operators of steps that are not recorded; while it is started none is replayed.
  OperatorTrace& operator_trace() { return trace_; }
  // Steps from now on are told to it, and none is replayed; null: they are told to nobody.
  void observe(ForwardObserver* observer) { observer_ = observer; }
  // DecodeGraphs::num_launches().
  int64_t num_launches(int64_t batch) const { return graphs_.num_launches(batch); }
  // On a device, for measurements of sequences that nothing has computed: floating point caches get
  // numbers around zero, so that an indexer selects tokens from everywhere. Without steps in
  // flight.
  void fill_caches_at_random();

  // Grows while steps execute, at least once per operator on the CPU and per step elsewhere. From
  // any thread.
  uint64_t progress() const { return pool_->progress() + num_collected_.load(); }
  // What is taken of the memory that a device has reserved, which is the plan's; 0 on the CPU.
  int64_t num_device_bytes() const { return arena_ == nullptr ? 0 : arena_->used(); }
  // DeviceRuntime::num_allocations(); 0 on the CPU. From any thread.
  int64_t num_device_allocations() const;
  // Of --enable-eplb. From any thread.
  ExpertBalancer::Figures expert_figures() const;

  // Fewer steps are submitted and not collected than the device takes at once.
  bool can_submit() const;
  // Steps come in the order of SchedulerOutput::step. Needs can_submit().
  void submit(const SchedulerOutput& step);

  // The calling thread owns the runner from now on.
  void take_thread();

  bool has_steps() const { return !in_flight_.empty(); }
  // collect() would not wait. Needs has_steps().
  bool is_done() const;

  struct Collected {
    ModelRunnerOutput output;
    // By the device's clock; 0 for a step that executes nothing.
    std::chrono::nanoseconds duration{0};  // of its execution
    std::chrono::nanoseconds wait{0};      // from the end of the one before to its begin
  };
  // The answer to the oldest submitted step; waits for it. Of a pipeline only the last stage has an
  // answer with content. A sequence whose logits admit no choice gets an error in its output;
  // nothing else fails. A sequence that has finished since the step was submitted has an output
  // without content.
  Collected collect();

 private:
  using Clock = std::chrono::steady_clock;

  ModelRunner(const ResolvedConfig& config,
              int64_t num_sampled_ids,
              SpanRecorder* recorder,
              const ParallelContext& parallel);

  // On a device: takes all memory of the plan at once and makes the stream.
  Status reserve();
  // On a device: steps whose multiplications ops::GemmTuner watches, before anything is served.
  // `advance` is told of each. Ranks take them together, as they do all steps.
  void tune_linears(const std::function<void()>& advance);
  void prefill_padding(int32_t num_tokens);
  Status prepare_device(const std::function<void(const StartProgress&)>& progress);
  Status record_graphs(const std::function<void()>& advance);
  // What a draft model does behind recorded steps.
  Status record_drafts(const std::vector<DecodeShape>& shapes);
  // A decode step whose inputs the builder has sent, tokens chosen but under kLater; its logits,
  // which the last stage has.
  Tensor decode(const StepInputs& inputs, SamplingKind kind);
  // The recorded step that does what `step` asks, or null.
  const DecodeGraphs::Graph* recorded(const SchedulerOutput& step) const;
  // On a device tokens that only it knows are filled in. `aux_hidden`: see ForwardContext.
  ForwardContext context_of(const StepInputs& inputs, const Tensor& aux_hidden = {});
  // For a draft model behind a recorded step, whose inputs these are.
  ForwardContext context_of_replayed(const StepInputs& inputs);
  // Of a recorded step: rows of `draft_states_` for the states that a draft model reads, undefined
  // without one.
  Tensor kept_states(int64_t num_tokens) const;

  void run(const SchedulerOutput& step, StepInFlight& flight);
  // All passes of a step, with a token that counts nowhere.
  void run_dummy(const SchedulerOutput& step);
  void forward_dummy();
  // `flight` has ended now: tells the recorder of its work on the device.
  void note_device_step(StepInFlight& flight);
  void note_operators(OperatorTrace::Noted noted, Clock::time_point begin);
  // Replays it.
  void replay(const DecodeGraphs::Graph& graph,
              const SchedulerOutput& step,
              std::span<DeviceSamplingRow> sampling,
              StepInFlight& flight);
  // On a device: chooses tokens of rows that follow grammars. Waits for the steps before, whose
  // tokens the grammars need; the device computes this one meanwhile.
  void choose_masked(const SchedulerOutput& step,
                     std::span<DeviceSamplingRow> rows,
                     const Tensor& logits,
                     StepInFlight& flight);
  // Chooses tokens behind the step whose logits these are: a recorded one has left them in memory
  // that is given out again.
  void choose_behind(std::span<const DeviceSamplingRow> rows, const Tensor& logits);
  // Gives the tokens of a step that the device has done to their sequences, once.
  void settle(StepInFlight& flight);
  // Any step, operator by operator.
  void forward(const SchedulerOutput& step,
               std::span<const HeadRow> rows,
               std::span<DeviceSamplingRow> sampling,
               StepInFlight& flight);
  // Logits of at most max_logits_rows() rows, all of one kind.
  Tensor logits_of(std::span<const HeadRow> rows,
                   const Tensor& hidden,
                   const ForwardContext& context);
  // On a device: enqueues the choice of the step's sampled rows.
  void choose(const SchedulerOutput& step,
              std::span<const HeadRow> rows,
              std::span<DeviceSamplingRow> sampling,
              const Tensor& hidden,
              const ForwardContext& context,
              StepInFlight& flight);
  void score_rows(std::span<const HeadRow> rows, const Tensor& logits, StepInFlight& flight);
  // On the CPU: samples these rows of the step, all of a sequence, and verifies its drafts.
  void sample_rows(const SchedulerOutput& step,
                   std::span<const HeadRow> rows,
                   const Tensor& logits,
                   StepInFlight& flight);
  // With drafts on a device, whose rows have been sampled: waits for them and verifies, and
  // proposes with the step's states.
  void verify(const SchedulerOutput& step,
              std::span<const DeviceSamplingRow> sampling,
              StepInFlight& flight);
  void propose(const SchedulerOutput& step,
               const Tensor& states,
               const ForwardContext& context,
               const DecodeShape* recorded,
               StepInFlight& flight);
  // Gives tokens that a device has sampled to their sequences and to the output.
  void accept(std::span<const SampledRow> rows,
              std::span<SampledToken> tokens,
              ModelRunnerOutput* output);

  const ResolvedConfig config_;
  std::vector<int32_t> tokens_of_ranks_;  // of the pass that is computed
  const int64_t num_sampled_ids_;
  SpanRecorder* const recorder_;
  const ParallelContext parallel_;
  std::unique_ptr<ThreadPool> pool_;
  DeviceRuntime* runtime_ = nullptr;  // null on the CPU, like all of a device
  std::unique_ptr<DeviceQueue> queue_;
  std::unique_ptr<DeviceArena> arena_;
  OperatorTrace trace_;
  ForwardObserver* observer_ = nullptr;
  Stream stream_;
  std::unique_ptr<CausalLM> model_;
  std::unique_ptr<DraftModel> draft_;  // null without
  int64_t num_aux_layers_ = 0;         // BuiltModel's
  MemoryPlan plan_;
  LayerStorage storage_;
  Workspace workspace_;
  std::optional<InputBuilder> input_builder_;
  std::optional<HostMirror> context_arrays_;  // of ContextRows; of several ranks
  std::optional<HostMirror> row_ids_;         // rows of hidden states that get logits
  int64_t max_rows_ = 0;
  Sampler sampler_;  // of scored rows
  RejectionSampler rejection_sampler_;
  GrammarMasks grammar_masks_;
  std::optional<Drafter> drafter_;
  std::unique_ptr<ExpertBalancer> expert_balancer_;  // null unless experts may be moved
  Tensor draft_states_;  // on a device with a draft model: what recorded steps leave to it
  std::optional<DeviceSampler> device_sampler_;
  DecodeGraphs graphs_;
  std::array<StepEvents, kMaxDeviceSteps + 1> events_;  // of the steps in flight and the one before
  const StepEvents* last_events_ = nullptr;             // of the step collected last
  SequenceTable sequences_;
  std::deque<StepInFlight> in_flight_;  // oldest first
  uint64_t num_submitted_ = 0;
  std::atomic<uint64_t> num_collected_{0};
  Clock::time_point last_device_end_;          // as it was told to the recorder
  std::optional<Clock::time_point> last_end_;  // on the CPU
};

}  // namespace atom
