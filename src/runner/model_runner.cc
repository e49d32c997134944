#include "runner/model_runner.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "config/speculative_config.h"
#include "layers/parallel_lm_head.h"
#include "ops/embedding/embedding.h"
#include "ops/pending_tokens/pending_tokens.h"
#include "runner/choose_device.h"
#include "runner/context_rows.h"
#include "runner/draft_rows.h"
#include "runner/layer_storage.h"
#include "runner/step_dry_run.h"
#include "runner/step_profile.h"
#include "tensor/copy_rows.h"

namespace atom {
namespace {

StepInFlight new_flight(const SchedulerOutput& step) {
  StepInFlight flight;
  flight.output.step = step.step;
  for (const ScheduledSequence& scheduled : step.scheduled) {
    flight.output.sequences.emplace_back().id = scheduled.id;
  }
  return flight;
}

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

bool has_grammar(std::span<RunnerSequence* const> sequences) {
  return std::ranges::any_of(
      sequences, [](const RunnerSequence* sequence) { return sequence->grammar.has_value(); });
}

GrammarState* grammar_of(RunnerSequence& sequence) {
  return sequence.grammar ? &*sequence.grammar : nullptr;
}

// Gives a sequence what was sampled for it on the CPU, and its grammar has taken.
void take_verified(std::span<SampledToken> tokens,
                   RunnerSequence& sequence,
                   SequenceOutput& result) {
  for (SampledToken& token : tokens) {
    if (token.status.ok()) {
      result.token_ids.push_back(token.token_id);
      if (sequence.sampling.params().logprobs) {
        result.logprobs.push_back(std::move(token.logprobs));
      }
    } else {
      result.error = token.status.message();
      // A step already ordered for this sequence needs some token to go on with.
      token.token_id = 0;
      sequence.sampling.append(0);
    }
    sequence.token_ids.push_back(token.token_id);
  }
  if (sequence.grammar) result.grammar_work = sequence.grammar->take_work();
  sequence.drafts.clear();
  if (!sequence.state_slots.empty()) sequence.state_index = tokens.size() - 1;
}

}  // namespace

ModelRunner::ModelRunner(const ResolvedConfig& config,
                         int64_t num_sampled_ids,
                         SpanRecorder* recorder,
                         const ParallelContext& parallel)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      recorder_(recorder),
      parallel_(parallel),
      pool_(std::make_unique<ThreadPool>(config.num_threads)),
      stream_(pool_.get()),
      rejection_sampler_(config.speculative.forced_acceptance),
      sequences_(config.model.eos_token_ids,
                 num_sampled_ids,
                 parallel.samples(),
                 config.scheduler.num_kv_groups) {}

ModelRunner::~ModelRunner() {
  if (queue_ == nullptr) return;
  runtime_->make_current();
  queue_->synchronize();
}

void ModelRunner::take_thread() {
  if (runtime_ != nullptr) runtime_->make_current();
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder,
    const ParallelContext& parallel) {
  const ParallelConfig& asked = config.engine.parallel;
  if (parallel.tensor_parallel_size != asked.tensor_parallel_size ||
      parallel.pipeline_parallel_size != asked.pipeline_parallel_size ||
      parallel.context_parallel_size != asked.prefill_context_parallel_size) {
    return unimplemented(
        "--tensor-parallel-size {}, --pipeline-parallel-size {} and "
        "--prefill-context-parallel-size {}: this command computes with one rank",
        asked.tensor_parallel_size,
        asked.pipeline_parallel_size,
        asked.prefill_context_parallel_size);
  }
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, num_sampled_ids, recorder, parallel));
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device, parallel.card));
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(runner->runtime_, device_runtime(device));
    runner->take_thread();
  }
  const SpeculativeMethod method = config.speculative.method;
  ASSIGN_OR_RETURN(BuiltModel built, build_model(config, device, parallel));
  ASSIGN_OR_RETURN(MemoryPlan plan, plan_memory(config, built));
  RETURN_IF_ERROR(agree_on_memory(parallel, runner->pool_.get(), &plan));
  runner->plan_ = plan;
  runner->model_ = std::move(built.model);
  runner->draft_ = std::move(built.draft);
  runner->num_aux_layers_ = built.num_aux_layers;
  if (!device.is_cpu()) RETURN_IF_ERROR(runner->reserve());
  runner->stream_.set_fixed_rows(config.engine.device.deterministic);
  runner->trace_.attach(runner->queue_.get());
  runner->stream_.set_trace(&runner->trace_);
  const Stream& stream = runner->stream_;
  const auto on_weights = [&](uint64_t done, uint64_t total) {
    if (progress) progress({StartProgress::Stage::kWeights, done, total});
  };
  RETURN_IF_ERROR(load_weights(config, stream, *runner->model_, runner->draft_.get(), on_weights));
  runner->storage_ = make_layer_storage(stream, built.storage, plan.storage_size());
  runner->workspace_ = Workspace(stream, plan.workspace);
  runner->input_builder_.emplace(limits_of_parts(config.scheduler, parallel.context_parallel_size),
                                 stream);
  runner->context_arrays_ =
      ContextRows::make_arrays(config.scheduler, parallel.context_parallel_size, stream);
  runner->max_rows_ = max_logits_rows(config.scheduler, device);
  runner->row_ids_.emplace(stream, runner->max_rows_, kMaxDeviceSteps);
  if (method != SpeculativeMethod::kOff && parallel.samples()) {
    runner->drafter_.emplace(config, parallel, runner->draft_.get(), num_sampled_ids, stream);
  }
  if (!device.is_cpu()) RETURN_IF_ERROR(runner->prepare_device(progress));
  // From here on tokens are to count.
  if (parallel.moves_experts) {
    runner->expert_balancer_ = std::make_unique<ExpertBalancer>(
        config.engine.parallel.eplb, parallel, std::move(built.moving_experts), stream);
  }
  RETURN_IF_ERROR(parallel.status());
  return runner;
}

Status ModelRunner::reserve() {
  queue_ = runtime_->create_queue();
  ASSIGN_OR_RETURN(arena_, DeviceArena::reserve(*runtime_, plan_.total()));
  stream_ = Stream(pool_.get(), queue_.get(), arena_.get());
  return {};
}

Status ModelRunner::prepare_device(const std::function<void(const StartProgress&)>& progress) {
  device_sampler_.emplace(*runtime_,
                          stream_,
                          max_rows_,
                          config_.model.vocab_size,
                          num_sampled_ids_,
                          parallel_.context_parallel);
  for (StepEvents& events : events_) events = {queue_->create_event(), queue_->create_event()};
  const DeviceConfig& options = config_.engine.device;
  if (draft_ != nullptr) {
    draft_states_ = resident_tensor(stream_, draft_states_shape(config_, *draft_), config_.dtype);
  }
  const size_t num_sizes = DecodeGraphs::shapes(config_).size();
  // Nodes would choose different algorithms, with other last bits, where ranks have to agree.
  const bool tunes = options.enable_tuning && !parallel_.shares_layers_over_nodes();
  const size_t num_tuned = tunes ? num_sizes + 1 : 0;  // and a prefill
  // Drafts of copies that share experts take as many passes as any of them needs.
  const bool records = options.enable_graphs && parallel_.can_be_recorded() &&
                       !(parallel_.copies_share_experts() && drafter_.has_value());
  if (options.enable_graphs && !parallel_.can_be_recorded()) {
    log::info("steps are not recorded: ranks on other nodes are reached by way of the host");
  }
  const size_t total = num_tuned + (records ? num_sizes : 0);
  size_t done = 0;
  const auto advance = [&] {
    if (progress) progress({StartProgress::Stage::kGraphs, ++done, total});
  };
  // Memory is taken while no card waits for another.
  parallel_.meet(pool_.get());
  if (tunes) tune_linears(advance);
  return records ? record_graphs(advance) : Status();
}

Status ModelRunner::record_graphs(const std::function<void()>& advance) {
  const auto prepare = [&](const DecodeShape& shape) {
    CHECK(device_sampler_->send_rows({}, shape.num_tokens()));
    return input_builder_->build_decodes({}, {}, shape);
  };
  const auto run_step = [&](const StepInputs& inputs, SamplingKind kind) {
    const Workspace::Scope scope(workspace_);
    return decode(inputs, kind);
  };
  const Clock::time_point begin = Clock::now();
  const std::vector<DecodeShape> shapes = DecodeGraphs::shapes(config_);
  const auto meet = [&] { parallel_.meet(pool_.get()); };
  RETURN_IF_ERROR(graphs_.record(stream_, shapes, prepare, run_step, meet, advance));
  RETURN_IF_ERROR(record_drafts(shapes));
  const std::chrono::duration<double> took = Clock::now() - begin;
  log::info("recorded decode steps of {} sizes in {:.2f} s", graphs_.size(), took.count());
  return {};
}

Status ModelRunner::record_drafts(const std::vector<DecodeShape>& shapes) {
  if (!drafter_ || draft_ == nullptr) return {};
  for (const DecodeShape& shape : shapes) {
    const Workspace::Scope scope(workspace_);
    const StepInputs inputs = input_builder_->build_decodes({}, {}, shape);
    const Tensor states = kept_states(shape.num_tokens());
    parallel_.meet(pool_.get());
    RETURN_IF_ERROR(drafter_->record(shape, states, context_of_replayed(inputs)));
  }
  return {};
}

int64_t ModelRunner::num_device_allocations() const {
  return runtime_ == nullptr ? 0 : runtime_->num_allocations();
}

ExpertBalancer::Figures ModelRunner::expert_figures() const {
  return expert_balancer_ == nullptr ? ExpertBalancer::Figures() : expert_balancer_->figures();
}

bool ModelRunner::can_submit() const {
  return in_flight_.size() < (queue_ == nullptr ? 1 : kMaxDeviceSteps);
}

void ModelRunner::submit(const SchedulerOutput& step) {
  CHECK(can_submit());
  sequences_.update(step);
  StepInFlight& flight = in_flight_.emplace_back(new_flight(step));
  if (step.is_dummy) return run_dummy(step);
  if (step.scheduled.empty()) return;
  const char* kind = step_kind(step);
  const SpanArguments arguments = step_arguments(step);
  if (recorder_ != nullptr && recorder_->is_on())
    flight.profiled = ProfiledStep{kind, arguments, {}};
  const HostRange range(recorder_, kind, arguments);
  const Workspace::Scope scope(workspace_);
  if (queue_ != nullptr) {
    flight.events = &events_[num_submitted_++ % events_.size()];
    run(step, flight);
    if (expert_balancer_ != nullptr) expert_balancer_->end_step(stream_);
    flight.events->end->mark();
  } else {
    const Clock::time_point begin = Clock::now();
    run(step, flight);
    if (expert_balancer_ != nullptr) expert_balancer_->end_step(stream_);
    const Clock::time_point end = Clock::now();
    flight.duration = end - begin;
    if (last_end_) flight.wait = begin - *last_end_;
    last_end_ = end;
    if (flight.profiled) {
      OperatorTrace::Noted noted = std::move(flight.profiled->operators);
      const Clock::time_point first = noted.marks.empty() ? begin : noted.marks[0].time;
      note_operators(std::move(noted), first);
    }
  }
}

void ModelRunner::run_dummy(const SchedulerOutput& step) {
  CHECK(parallel_.copies_share_experts());
  if (const DecodeGraphs::Graph* graph = recorded(step)) {
    input_builder_->build_decodes({}, {}, graph->shape);
    parallel_.meet_to_replay();
    graph->launch(SamplingKind::kLargest);
  } else {
    forward_dummy();
  }
  if (expert_balancer_ != nullptr) expert_balancer_->end_step(stream_);
}

void ModelRunner::forward_dummy() {
  const Workspace::Scope scope(workspace_);
  ForwardContext context = context_of(input_builder_->build_dummy());
  context.is_dummy = true;
  const Tensor hidden = model_->forward(context);
  if (!drafter_ || draft_ == nullptr) return;
  const Tensor& states = context.aux_hidden.defined() ? context.aux_hidden : hidden;
  drafter_->propose_nothing(states, context);
}

bool ModelRunner::is_done() const {
  CHECK(has_steps());
  const StepInFlight& oldest = in_flight_.front();
  return oldest.events == nullptr || oldest.events->end->is_done();
}

ModelRunner::Collected ModelRunner::collect() {
  CHECK(has_steps());
  const HostRange range(recorder_, "collect");
  StepInFlight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (flight.events != nullptr) {
    flight.events->end->wait();
    flight.duration = flight.events->end->since(*flight.events->begin);
    if (last_events_ != nullptr) flight.wait = flight.events->begin->since(*last_events_->end);
    last_events_ = flight.events;
    if (flight.profiled) note_device_step(flight);
    settle(flight);
  }
  // A sequence that failed in either kind of rows has no token.
  for (SequenceOutput& result : flight.output.sequences) {
    if (!result.error.empty()) result.token_ids.clear();
  }
  num_collected_.fetch_add(1);
  return {std::move(flight.output), flight.duration, flight.wait};
}

void ModelRunner::settle(StepInFlight& flight) {
  if (std::exchange(flight.is_settled, true)) return;
  std::vector<SampledToken> tokens(flight.rows.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const RunnerSequence* sequence = sequences_.find(flight.rows[i].id);
    if (sequence == nullptr) continue;
    tokens[i] = flight.tokens.token(static_cast<int64_t>(i), sequence->sampling.params());
  }
  accept(flight.rows, tokens, &flight.output);
}

void ModelRunner::note_device_step(StepInFlight& flight) {
  const Clock::time_point now = Clock::now();
  // Steps do not overlap, though the end of one may have been seen late.
  const Clock::time_point begin = std::max(now - flight.duration, last_device_end_);
  last_device_end_ = begin + flight.duration;
  const ProfiledStep& step = *flight.profiled;
  const Span span{"device", step.kind, "", begin, last_device_end_, step.arguments};
  recorder_->add(std::span(&span, 1));
  note_operators(std::move(flight.profiled->operators), begin);
}

void ModelRunner::note_operators(OperatorTrace::Noted noted, Clock::time_point begin) {
  if (noted.runs.empty()) return;
  recorder_->add(operator_spans(trace_.measured(std::move(noted)), begin));
}

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
  if (queue_ == nullptr || trace_.is_started()) return nullptr;
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

void ModelRunner::fill_caches_at_random() {
  if (queue_ == nullptr) return;
  RandomFill fill{.key = 1, .half_width = 1, .byte_mask = 0xbf};  // no NaN among FP8 codes
  for (const Tensor& cache : storage_.caches) {
    if (cache.dtype() == DType::kUInt8) continue;  // bytes of several fields
    queue_->fill_random(cache.raw_data(), cache.dtype(), cache.num_elements(), fill);
    ++fill.key;
  }
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

void ModelRunner::choose_masked(const SchedulerOutput& step,
                                std::span<DeviceSamplingRow> rows,
                                const Tensor& logits,
                                StepInFlight& flight) {
  const HostRange whole(recorder_, "masks");
  // The last in flight is this step.
  for (size_t i = 0; i + 1 < in_flight_.size(); ++i) {
    if (in_flight_[i].events == nullptr) continue;
    in_flight_[i].events->end->wait();
    const HostRange range(recorder_, "take tokens");
    settle(in_flight_[i]);
  }
  std::vector<GrammarMasks::Sequence> constrained;
  std::vector<size_t> sampled;  // indices of sequences
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    if (step.scheduled[s].num_sampled == 0) continue;
    RunnerSequence& sequence = *sequences_.scheduled()[s];
    const auto num_drafts = static_cast<size_t>(step.scheduled[s].num_drafts());
    const auto drafts = std::span<const int32_t>(sequence.drafts).first(num_drafts);
    sampled.push_back(s);
    constrained.push_back({grammar_of(sequence), drafts});
  }
  {
    const HostRange range(recorder_, "fill masks");
    grammar_masks_.fill(stream_.pool(), constrained);
  }
  size_t row = 0;
  for (size_t i = 0; i < sampled.size(); ++i) {
    const std::span<const TokenBitmask> allowed = grammar_masks_.allowed(i);
    for (size_t place = 0; place <= constrained[i].drafts.size(); ++place, ++row) {
      rows[row].pending_row = -1;
      if (!allowed.empty()) rows[row].allowed = allowed[place];
    }
    if (grammar_masks_.status(i).ok()) continue;
    flight.output.sequences[sampled[i]].error = grammar_masks_.status(i).message();
  }
  CHECK(row == rows.size());
  choose_behind(rows, logits);
}

void ModelRunner::choose_behind(std::span<const DeviceSamplingRow> rows, const Tensor& logits) {
  const Workspace::Scope scope(workspace_);
  workspace_.skip_behind(logits);
  device_sampler_->send_and_choose(rows, logits, workspace_);
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

void ModelRunner::choose(const SchedulerOutput& step,
                         std::span<const HeadRow> rows,
                         std::span<DeviceSamplingRow> sampling,
                         const Tensor& hidden,
                         const ForwardContext& context,
                         StepInFlight& flight) {
  if (rows.empty()) return;
  const Workspace::Scope scope(workspace_);
  const Tensor logits = logits_of(rows, hidden, context);
  if (has_grammar(sequences_.scheduled())) return choose_masked(step, sampling, logits, flight);
  const SamplingKind kind = DeviceSampler::kind_of(sampling);
  if (kind == SamplingKind::kLargest) return device_sampler_->choose(kind, logits, workspace_);
  device_sampler_->send_and_choose(sampling, logits, workspace_);
}

void ModelRunner::verify(const SchedulerOutput& step,
                         std::span<const DeviceSamplingRow> sampling,
                         StepInFlight& flight) {
  if (sampling.empty()) return;
  const HostRange range(recorder_, "verify");
  const FetchedTokens fetched = device_sampler_->fetch(sampling);
  queue_->synchronize();
  int64_t row = 0;
  std::vector<SampledToken> tokens;
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    const int32_t num_sampled = step.scheduled[s].num_sampled;
    if (num_sampled == 0) continue;
    RunnerSequence& sequence = *sequences_.scheduled()[s];
    std::vector<SampledToken> sampled;
    for (int32_t i = 0; i < num_sampled; ++i) {
      sampled.push_back(fetched.token(row++, sequence.sampling.params()));
    }
    const auto num_drafts = static_cast<size_t>(step.scheduled[s].num_drafts());
    const std::span drafts = std::span(sequence.drafts).first(num_drafts);
    rejection_sampler_.accept({&sequence.sampling, drafts}, sampled, tokens);
    if (sequence.grammar) {
      const GrammarTokens taken{&*sequence.grammar, tokens};
      accept_tokens(stream_.pool(), {&taken, 1});
    }
    take_verified(tokens, sequence, flight.output.sequences[s]);
  }
}

void ModelRunner::propose(const SchedulerOutput& step,
                          const Tensor& states,
                          const ForwardContext& context,
                          const DecodeShape* recorded,
                          StepInFlight& flight) {
  const HostRange range(recorder_, "draft");
  drafter_->propose(step, sequences_.scheduled(), states, context, recorded, &flight.output);
}

Tensor ModelRunner::logits_of(std::span<const HeadRow> rows,
                              const Tensor& hidden,
                              const ForwardContext& context) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Tensor selected = workspace_.tensor({num_rows, hidden.size(1)}, hidden.dtype());
  const Tensor logits = workspace_.tensor({num_rows, config_.model.vocab_size}, DType::kFloat32);
  row_ids_->rotate();
  for (int64_t i = 0; i < num_rows; ++i) row_ids_->host()[i] = rows[i].hidden_row;
  row_ids_->send(0, num_rows);
  ops::embedding(stream_, row_ids_->view(0, {num_rows}), hidden, selected);
  model_->compute_logits(selected, logits, context);
  return logits;
}

void ModelRunner::sample_rows(const SchedulerOutput& step,
                              std::span<const HeadRow> rows,
                              const Tensor& logits,
                              StepInFlight& flight) {
  const HostRange range(recorder_, "sample");
  trace_.begin("sample", "host", {});
  std::vector<size_t> sampled;  // indices of sequences
  std::vector<DraftedSequence> drafted;
  std::vector<GrammarMasks::Sequence> constrained;
  for (size_t i = 0; i < rows.size(); i += step.scheduled[rows[i].sequence].num_sampled) {
    const size_t index = rows[i].sequence;
    RunnerSequence& sequence = *sequences_.scheduled()[index];
    const auto num_drafts = static_cast<size_t>(step.scheduled[index].num_drafts());
    const auto drafts = std::span<const int32_t>(sequence.drafts).first(num_drafts);
    sampled.push_back(index);
    drafted.push_back({&sequence.sampling, drafts});
    constrained.push_back({grammar_of(sequence), drafts});
  }
  grammar_masks_.fill(stream_.pool(), constrained);
  for (size_t i = 0; i < drafted.size(); ++i) drafted[i].allowed = grammar_masks_.allowed(i);
  std::vector<std::vector<SampledToken>> tokens(drafted.size());
  rejection_sampler_.sample(stream_, logits, drafted, tokens);
  std::vector<GrammarTokens> taken;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (constrained[i].grammar != nullptr) taken.push_back({constrained[i].grammar, tokens[i]});
  }
  accept_tokens(stream_.pool(), taken);
  for (size_t i = 0; i < tokens.size(); ++i) {
    RunnerSequence& sequence = *sequences_.scheduled()[sampled[i]];
    SequenceOutput& result = flight.output.sequences[sampled[i]];
    if (!grammar_masks_.status(i).ok()) result.error = grammar_masks_.status(i).message();
    take_verified(tokens[i], sequence, result);
  }
}

void ModelRunner::accept(std::span<const SampledRow> rows,
                         std::span<SampledToken> tokens,
                         ModelRunnerOutput* output) {
  std::vector<GrammarTokens> taken;
  for (size_t i = 0; i < rows.size(); ++i) {
    RunnerSequence* sequence = sequences_.find(rows[i].id);
    if (sequence != nullptr && sequence->grammar) {
      taken.push_back({&*sequence->grammar, tokens.subspan(i, 1)});
    }
  }
  accept_tokens(stream_.pool(), taken);
  for (size_t i = 0; i < rows.size(); ++i) {
    RunnerSequence* sequence = sequences_.find(rows[i].id);
    if (sequence == nullptr) continue;
    SampledToken& token = tokens[i];
    SequenceOutput& result = output->sequences[rows[i].output_index];
    if (sequence->grammar) result.grammar_work = sequence->grammar->take_work();
    if (token.status.ok()) {
      result.token_ids.push_back(token.token_id);
      if (sequence->sampling.params().logprobs)
        result.logprobs.push_back(std::move(token.logprobs));
    } else {
      result.error = token.status.message();
      // A step already ordered for this sequence needs some token to go on with.
      token.token_id = 0;
    }
    sequence->token_ids[rows[i].token_index] = token.token_id;
    sequence->sampling.append(token.token_id);
  }
}

void ModelRunner::score_rows(std::span<const HeadRow> rows,
                             const Tensor& logits,
                             StepInFlight& flight) {
  std::vector<ScoredToken> tokens;
  for (const HeadRow& row : rows) {
    const RunnerSequence& sequence = *sequences_.scheduled()[row.sequence];
    const SamplingParams& params = sequence.sampling.params();
    tokens.push_back({row.scored_token, *params.prompt_logprobs, config_.model.vocab_size});
  }
  std::vector<Result<TokenLogprobs>> scores(rows.size(), TokenLogprobs());
  if (device_sampler_) {
    device_sampler_->score(logits, tokens, scores);
  } else {
    sampler_.score(stream_, logits, tokens, scores);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    SequenceOutput& result = flight.output.sequences[rows[i].sequence];
    if (scores[i].ok()) {
      result.prompt_logprobs.push_back(std::move(scores[i]).value());
    } else {
      result.error = scores[i].status().message();
      result.prompt_logprobs.emplace_back();
    }
  }
}

}  // namespace atom
