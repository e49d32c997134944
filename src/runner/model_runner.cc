#include "runner/model_runner.h"

#include <algorithm>
#include <chrono>

#include "runner/step_profile.h"

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

void ModelRunner::fill_caches_at_random() {
  if (queue_ == nullptr) return;
  RandomFill fill{.key = 1, .half_width = 1, .byte_mask = 0xbf};  // no NaN among FP8 codes
  for (const Tensor& cache : storage_.caches) {
    if (cache.dtype() == DType::kUInt8) continue;  // bytes of several fields
    queue_->fill_random(cache.raw_data(), cache.dtype(), cache.num_elements(), fill);
    ++fill.key;
  }
}

}  // namespace atom
