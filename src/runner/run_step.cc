// ModelRunner's steps: operator by operator, or a recorded one.
#include <algorithm>

#include "layers/parallel_lm_head.h"
#include "ops/pending_tokens/pending_tokens.h"
#include "runner/context_rows.h"
#include "runner/draft_rows.h"
#include "runner/model_runner.h"
#include "runner/step_profile.h"
#include "tensor/copy_rows.h"

namespace atom {
namespace {

// The rows that sample, as a device sees them, and a place for each one's token.
std::vector<DeviceSamplingRow> sampling_rows(const SchedulerOutput& step,
                                             std::span<const HeadRow> rows,
                                             std::span<RunnerSequence* const> sequences,
                                             StepInFlight& flight) {
  std::vector<DeviceSamplingRow> sampling;
  for (const HeadRow& row : rows.subspan(count_scored(rows))) {
    RunnerSequence& sequence = *sequences[row.sequence];
    const auto index = static_cast<int32_t>(flight.rows.size());
    sampling.push_back({&sequence.sampling, sequence.num_generated(), sequence.pending_row()});
    flight.rows.push_back(
        {row.sequence, step.scheduled[row.sequence].id, sequence.token_ids.size()});
    sequence.token_ids.push_back(~index);
  }
  return sampling;
}

// The end of a part of the sampled rows from `begin` on: at most `max_rows`, and all of a sequence.
size_t end_of_part(std::span<const HeadRow> rows, size_t begin, size_t max_rows) {
  size_t end = std::min(begin + max_rows, rows.size());
  while (end < rows.size() && rows[end].sequence == rows[end - 1].sequence) --end;
  CHECK(end > begin);
  return end;
}

}  // namespace

ForwardContext ModelRunner::context_of(const StepInputs& inputs, const Tensor& aux_hidden) {
  if (device_sampler_) {
    ops::fill_pending_tokens(stream_, device_sampler_->token_ids(), inputs.token_ids);
  }
  tokens_of_ranks_ = parallel_.exchange_token_counts(stream_, inputs.token_ids.size(0));
  ForwardContext context{.stream = stream_,
                         .workspace = workspace_,
                         .token_ids = inputs.token_ids,
                         .positions = inputs.positions,
                         .batch = inputs.batch,
                         .storage = storage_,
                         .window_batch = inputs.window_batch,
                         .state_slots = inputs.state_slots,
                         .token_state_slots = inputs.token_state_slots,
                         .observer = observer_,
                         .aux_hidden = aux_hidden,
                         .parts = inputs.parts,
                         .tokens_of_ranks = tokens_of_ranks_};
  if (!aux_hidden.defined()) {
    context.aux_hidden = aux_hidden_of(config_, num_aux_layers_, context.num_tokens(), workspace_);
  }
  return context;
}

ForwardContext ModelRunner::context_of_replayed(const StepInputs& inputs) {
  return {.stream = stream_,
          .workspace = workspace_,
          .token_ids = inputs.token_ids,
          .positions = inputs.positions,
          .batch = inputs.batch,
          .storage = storage_};
}

Tensor ModelRunner::kept_states(int64_t num_tokens) const {
  if (!draft_states_.defined()) return {};
  return draft_states_.narrow(0, 0, num_tokens * num_states_of(*draft_));
}

Tensor ModelRunner::decode(const StepInputs& inputs, SamplingKind kind) {
  const Tensor kept = kept_states(inputs.token_ids.size(0));
  const bool keeps_aux = draft_ != nullptr && !draft_->aux_layers().empty();
  const ForwardContext context = context_of(inputs, keeps_aux ? kept : Tensor());
  const Tensor hidden = model_->forward(context);
  if (!parallel_.samples()) return {};
  if (kept.defined() && !keeps_aux) copy_rows(stream_, hidden, kept);
  if (kind == SamplingKind::kLargest && parallel_.tensor_parallel_size > 1) {
    const ParallelLMHead& head = model_->lm_head();
    device_sampler_->choose_largest_of_parts(
        head.forward_part(hidden, context), head.part().first, parallel_, workspace_);
    return {};
  }
  const Tensor logits =
      workspace_.tensor({hidden.size(0), config_.model.vocab_size}, DType::kFloat32);
  model_->compute_logits(hidden, logits, context);
  if (kind != SamplingKind::kLater) device_sampler_->choose(kind, logits, workspace_);
  return logits;
}

const DecodeGraphs::Graph* ModelRunner::recorded(const SchedulerOutput& step) const {
  if (queue_ == nullptr || trace_.is_started() || observer_ != nullptr) return nullptr;
  if (parallel_.copies_share_experts()) {
    return step.shared_batch == 0 ? nullptr : graphs_.find(step.shared_batch, 1);
  }
  int64_t queries = 1;
  for (const ScheduledSequence& scheduled : step.scheduled) {
    if (!scheduled.is_decode()) return nullptr;
    queries = std::max<int64_t>(queries, scheduled.num_new_tokens);
  }
  return graphs_.find(std::ssize(step.scheduled), queries);
}

void ModelRunner::replay(const DecodeGraphs::Graph& graph,
                         const SchedulerOutput& step,
                         std::span<DeviceSamplingRow> sampling,
                         StepInFlight& flight) {
  const bool is_masked = parallel_.samples() && has_grammar(sequences_.scheduled());
  const int64_t num_tokens = graph.shape.num_tokens();
  SamplingKind kind = is_masked ? SamplingKind::kLater : DeviceSampler::kind_of(sampling);
  // What is more than can be sent at once is sent part by part, behind the step.
  if (kind == SamplingKind::kAny && !device_sampler_->send_rows(sampling, num_tokens)) {
    kind = SamplingKind::kLater;
  }
  const StepInputs inputs = [&] {
    const HostRange range(recorder_, "build inputs");
    return input_builder_->build_decodes(step, sequences_.scheduled(), graph.shape);
  }();
  {
    const HostRange range(recorder_, "execute recorded step");
    parallel_.meet_to_replay();
    flight.events->begin->mark();
    graph.launch(kind);
  }
  if (kind == SamplingKind::kLater) {
    const Tensor logits = graph.logits.narrow(0, 0, std::ssize(sampling));
    if (is_masked) {
      choose_masked(step, sampling, logits, flight);
    } else {
      choose_behind(sampling, logits);
    }
  }
  if (!drafter_) return;
  verify(step, sampling, flight);
  propose(step, kept_states(num_tokens), context_of_replayed(inputs), &graph.shape, flight);
}

void ModelRunner::run(const SchedulerOutput& step, StepInFlight& flight) {
  const std::span<RunnerSequence* const> sequences = sequences_.scheduled();
  std::vector<HeadRow> rows;
  if (parallel_.samples()) rows = select_head_rows(step, sequences);
  std::vector<DeviceSamplingRow> sampling;
  SupposedStates supposed;
  if (device_sampler_ && drafter_) {
    sampling = rows_behind_drafts(step, sequences, &supposed);
  } else if (device_sampler_) {
    sampling = sampling_rows(step, rows, sequences, flight);
  }
  const DecodeGraphs::Graph* graph = recorded(step);
  copy_states(stream_, storage_, step.state_restores);
  if (graph != nullptr) {
    replay(*graph, step, sampling, flight);
  } else {
    if (flight.profiled) trace_.start();
    forward(step, rows, sampling, flight);
    if (flight.profiled) flight.profiled->operators = trace_.end();
  }
  copy_states(stream_, storage_, step.state_saves);
  if (device_sampler_ && !drafter_ && !sampling.empty()) {
    // What follows until the trace ends is no operator's time.
    if (trace_.is_started()) trace_.begin("fetch", "host", {});
    flight.tokens = device_sampler_->fetch(sampling);
  }
}

void ModelRunner::forward(const SchedulerOutput& step,
                          std::span<const HeadRow> rows,
                          std::span<DeviceSamplingRow> sampling,
                          StepInFlight& flight) {
  const ContextRows own(step,
                        sequences_.scheduled(),
                        config_.scheduler.block_size,
                        parallel_,
                        context_arrays_ ? &*context_arrays_ : nullptr,
                        config_.context_parallel_threshold);
  const StepInputs inputs = [&] {
    const HostRange range(recorder_, "build inputs");
    return input_builder_->build(own.step(), own.sequences());
  }();
  const HostRange range(recorder_, "execute");
  if (flight.events != nullptr) flight.events->begin->mark();
  ForwardContext context = context_of(inputs);
  context.split = own.split();
  Tensor hidden = model_->forward(context);
  if (!parallel_.samples()) return;
  hidden = own.whole(hidden, 1, context);
  context.aux_hidden = own.whole(context.aux_hidden, num_aux_layers_, context);
  const size_t num_scored = count_scored(rows);
  const auto max_rows = static_cast<size_t>(max_rows_);
  for (size_t begin = 0; begin < num_scored; begin += max_rows) {
    const Workspace::Scope scope(workspace_);
    const auto part = rows.subspan(begin, std::min(max_rows, num_scored - begin));
    score_rows(part, logits_of(part, hidden, context), flight);
  }
  if (device_sampler_) {
    choose(step, rows.subspan(num_scored), sampling, hidden, context, flight);
    if (drafter_) verify(step, sampling, flight);
  } else {
    for (size_t begin = num_scored; begin < rows.size();) {
      const Workspace::Scope scope(workspace_);
      const auto part = rows.subspan(begin, end_of_part(rows, begin, max_rows) - begin);
      sample_rows(step, part, logits_of(part, hidden, context), flight);
      begin += part.size();
    }
  }
  const Tensor& states = context.aux_hidden.defined() ? context.aux_hidden : hidden;
  if (drafter_) propose(step, states, context, /*recorded=*/nullptr, flight);
}

void ModelRunner::propose(const SchedulerOutput& step,
                          const Tensor& states,
                          const ForwardContext& context,
                          const DecodeShape* recorded,
                          StepInFlight& flight) {
  const HostRange range(recorder_, "draft");
  drafter_->propose(step, sequences_.scheduled(), states, context, recorded, &flight.output);
}

}  // namespace atom
