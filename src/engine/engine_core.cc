#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "config/speculative_config.h"
#include "engine/zmq_frames.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

constexpr int kLastWordLinger = 1000;  // milliseconds
// How often an idle core looks whether a profile is written.
constexpr std::chrono::milliseconds kWritingPoll{5};
// How often it looks whether a grammar is compiled.
constexpr std::chrono::milliseconds kCompilingPoll{1};
// What an idle copy lets others wait at most that find something to do without having been asked: a
// grammar that is compiled.
constexpr std::chrono::milliseconds kIdleExchange{20};
// How often it says that it still waits for other nodes.
constexpr std::chrono::milliseconds kWaitingBeat{50};
constexpr const char* kTrack = "engine core";  // of a profile

CoreReady ready_message(const MemoryPlan& plan) {
  CoreReady ready;
  ready.weights = plan.weights;
  ready.workspace = plan.workspace;
  ready.kv_cache = plan.kv_cache();
  ready.num_blocks = plan.num_blocks;
  ready.block_size = plan.block_size;
  return ready;
}

// Reads the checkpoint's tokenizer again, in this process, when the first grammar comes.
CompileQueue::MakeCompiler make_compiler(const ResolvedConfig& config, int64_t num_sampled_ids) {
  const ModelSourceConfig& source = config.engine.model;
  return [folder = source.tokenizer.empty() ? source.model : source.tokenizer,
          ends = config.model.eos_token_ids,
          num_sampled_ids]() -> Result<std::unique_ptr<GrammarCompiler>> {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::load(folder));
    return GrammarCompiler::create(*tokenizer, num_sampled_ids, ends);
  };
}

// What follows from the device and its memory.
ResolvedConfig with_memory(ResolvedConfig config, const MemoryPlan& plan) {
  config.scheduler.num_blocks = plan.num_blocks;
  config.scheduler.num_state_slots = plan.num_state_slots;
  set_drafting_batch(config.speculative, plan.device.is_cpu(), &config.scheduler);
  return config;
}

}  // namespace

void EngineCore::report_failure(zmq::context_t& context,
                                const EngineCoreEndpoints& endpoints,
                                const Status& status) {
  zmq::socket_t responses = connect(context, zmq::socket_type::push, endpoints.responses);
  // It may be the last thing that a process does.
  responses.set(zmq::sockopt::linger, kLastWordLinger);
  send_frame(responses, encode(CoreResponse(CoreFailed{status.code(), status.message()})));
}

std::function<bool()> EngineCore::beat_while_waiting(zmq::socket_t* responses) {
  return [responses, told = Clock::time_point()]() mutable {
    if (Clock::now() - told < kWaitingBeat) return true;
    told = Clock::now();
    send_frame(*responses, encode(CoreResponse(CoreHeartbeat{})));
    return true;
  };
}

bool EngineCore::serve(const ResolvedConfig& config,
                       int64_t num_sampled_ids,
                       zmq::context_t& context,
                       const EngineCoreEndpoints& endpoints,
                       const CopyPlace* place) {
  zmq::socket_t requests =
      connect(context, zmq::socket_type::dealer, endpoints.requests, endpoints.identity);
  zmq::socket_t responses = connect(context, zmq::socket_type::push, endpoints.responses);
  const auto progress = [&](const StartProgress& start) {
    const bool has_weights = start.stage == StartProgress::Stage::kGraphs;
    const LoadingStage stage = has_weights ? LoadingStage::kGraphs : LoadingStage::kWeights;
    send_frame(responses, encode(CoreResponse(CoreLoading{stage, start.done, start.total})));
  };
  Profiler profiler(config);
  Result<std::unique_ptr<RunnerGroup>> runner =
      place == nullptr
          ? RunnerGroup::create(config,
                                num_sampled_ids,
                                progress,
                                profiler.recorder(),
                                beat_while_waiting(&responses))
          : RunnerGroup::create_copy(
                config, num_sampled_ids, progress, profiler.recorder(), place->ranks, place->copy);
  if (!runner.ok()) {
    report_failure(context, endpoints, runner.status());
    return false;
  }
  const MemoryPlan plan = (*runner)->memory_plan();
  EngineCore core(with_memory(config, plan),
                  num_sampled_ids,
                  &profiler,
                  place,
                  std::move(*runner),
                  std::move(requests),
                  std::move(responses),
                  endpoints.heartbeat);
  core.send(ready_message(plan));
  const Status status = core.loop();
  if (!status.ok()) {
    // All that waits ends for this reason, whatever ends first.
    core.runner_->fail(status);
    report_failure(context, endpoints, status);
  } else {
    core.runner_->end();
  }
  return status.ok();
}

EngineCore::EngineCore(const ResolvedConfig& config,
                       int64_t num_sampled_ids,
                       Profiler* profiler,
                       const CopyPlace* place,
                       std::unique_ptr<RunnerGroup> runner,
                       zmq::socket_t requests,
                       zmq::socket_t responses,
                       std::chrono::milliseconds heartbeat)
    : config_(config),
      profiler_(*profiler),
      scheduler_(config.scheduler, config.model.eos_token_ids),
      runner_(std::move(runner)),
      requests_(std::move(requests)),
      responses_(std::move(responses)),
      compile_queue_(make_compiler(config, num_sampled_ids), {}),
      heartbeat_(heartbeat) {
  if (place != nullptr && place->lockstep != nullptr) lockstep_.emplace(place->lockstep);
}

Status EngineCore::loop() {
  while (lockstep_ || !stopping_) {
    receive_requests();
    admit_compiled();
    if (lockstep_) {
      ASSIGN_OR_RETURN(const bool goes_on, submit_together());
      if (!goes_on) return {};
    } else {
      submit_steps();
    }
    if (runner_->num_in_flight() > 0) collect_step();
    RETURN_IF_ERROR(runner_->status());
    send_outbox();
    send_profile_if_written();
    send_heartbeat_if_due();
  }
  return {};
}

void EngineCore::receive_requests() {
  std::chrono::milliseconds timeout{0};
  const bool has_work =
      scheduler_.has_work() || others_work_ || num_exchanges_due_ > 0 || stopping_;
  if (runner_->num_in_flight() == 0 && !has_work) {
    was_idle_ = true;
    timeout = std::chrono::ceil<std::chrono::milliseconds>(heartbeat_due_ - Clock::now());
    if (profiler_.is_writing()) timeout = std::min(timeout, kWritingPoll);
    if (compile_queue_.is_busy()) timeout = std::min(timeout, kCompilingPoll);
    if (lockstep_) timeout = std::min(timeout, kIdleExchange);
  }
  while (std::optional<std::vector<uint8_t>> frame = receive_frame(requests_, timeout)) {
    Result<CoreRequest> request = decode_core_request(*frame);
    if (request.ok()) {
      handle(std::move(*request));
    } else {
      log::error("engine core: {}", request.status().message());
    }
    timeout = {};
  }
}

void EngineCore::send_outbox() {
  if (outbox_.deltas.empty()) return;
  const SpanScope span(profiler_.recorder(), kTrack, "send");
  outbox_.stats = stats();
  send(std::move(outbox_));
  outbox_ = {};
}

void EngineCore::control_profile(ProfileAction action) {
  const bool starts = action == ProfileAction::kStart;
  const Status status = starts ? profiler_.start() : profiler_.stop();
  // What was stopped is answered when its file is written.
  if (starts || !status.ok()) send(CoreProfile{action, status.code(), status.message()});
}

void EngineCore::send_profile_if_written() {
  if (!profiler_.is_writing()) return;
  if (std::optional<CoreProfile> profile = profiler_.take_written()) send(*std::move(profile));
}

SchedulerOutput EngineCore::schedule() {
  const SpanScope span(profiler_.recorder(), kTrack, "schedule");
  SchedulerOutput step = scheduler_.schedule();
  for (const NewSequence& sequence : step.new_sequences) {
    Queueing& queueing = queueing_[sequence.id];
    if (queueing.duration.count() == 0) queueing.duration = Clock::now() - queueing.arrival;
  }
  if (!step.empty()) note_drafting(step);
  return step;
}

void EngineCore::submit_steps() {
  while (scheduler_.can_schedule()) {
    SchedulerOutput step = schedule();
    if (step.empty()) return;
    runner_->submit(std::move(step));
  }
}

Result<StepSignals> EngineCore::agree(const StepSignals& own) {
  const SpanScope span(profiler_.recorder(), kTrack, "agree");
  lockstep_->start(own);
  for (;;) {
    std::optional<Result<StepSignals>> agreed = lockstep_->wait_until(heartbeat_due_);
    if (agreed) return *std::move(agreed);
    // A rank that fails ends the group, and with it this wait.
    if (const Status status = runner_->status(); !status.ok()) lockstep_->fail(status);
    send_heartbeat_if_due();
  }
}

Result<bool> EngineCore::submit_together() {
  // What is queued when the core is to end is dropped, as it is without other copies.
  const bool has_work = scheduler_.has_work() && !stopping_;
  SchedulerOutput step;
  if (has_work) step = schedule();
  const bool has_prefill = std::ranges::any_of(
      step.scheduled, [](const ScheduledSequence& scheduled) { return !scheduled.is_decode(); });
  ASSIGN_OR_RETURN(const StepSignals agreed,
                   agree({has_prefill, step.num_tokens, has_work, stopping_}));
  others_work_ = agreed.has_unfinished != 0;
  num_exchanges_due_ = std::max(0, num_exchanges_due_ - 1);
  if (!others_work_) return agreed.shutdown == 0;
  ++counted_.num_shared_steps;
  counted_.num_shared_step_tokens += static_cast<uint64_t>(step.num_tokens);
  counted_.num_largest_step_tokens += static_cast<uint64_t>(agreed.num_tokens);
  counted_.num_shared_prefills += static_cast<uint64_t>(agreed.has_prefill);
  step.is_dummy = step.scheduled.empty();
  if (step.is_dummy) ++counted_.num_dummy_steps;
  if (agreed.has_prefill == 0 && config_.scheduler.num_speculative_tokens == 0) {
    step.shared_batch = static_cast<int32_t>(std::max<int64_t>(1, agreed.num_tokens));
  }
  runner_->submit(std::move(step));
  return true;
}

void EngineCore::note_drafting(const SchedulerOutput& step) {
  const int32_t most = config_.scheduler.speculative_disable_by_batch_size;
  if (config_.scheduler.num_speculative_tokens == 0 || step.wants_drafts || noted_large_batch_) {
    return;
  }
  noted_large_batch_ = true;
  log::info(
      "more than {} requests run: nothing is drafted meanwhile "
      "(--speculative-disable-by-batch-size)",
      most);
}

RequestDelta& EngineCore::add_delta(SequenceId id, FinishReason finish_reason) {
  RequestDelta& delta = outbox_.deltas.emplace_back();
  delta.id = id;
  delta.finish_reason = finish_reason;
  const auto queueing = queueing_.find(id);
  CHECK(queueing != queueing_.end());
  delta.queue_ns = static_cast<uint64_t>(queueing->second.duration.count());
  if (finish_reason != FinishReason::kNone) queueing_.erase(queueing);
  return delta;
}

void EngineCore::note_times(const RunnerGroup::Completed& completed) {
  ++counted_.num_steps;
  if (completed.step->scheduled.empty()) return;
  counted_.execute_ns += static_cast<uint64_t>(completed.collected.duration.count());
  if (!std::exchange(was_idle_, false)) {
    counted_.device_wait_ns += static_cast<uint64_t>(completed.collected.wait.count());
  }
}

void EngineCore::collect_step() {
  std::optional<RunnerGroup::Completed> completed = runner_->wait_until(heartbeat_due_);
  for (; !completed; completed = runner_->wait_until(heartbeat_due_)) {
    // A group that fails ends the others, too, and with them this step.
    (void)runner_->status();
    send_heartbeat_if_due();
  }
  // What ranks that cannot go on have computed is not told.
  if (!runner_->status().ok()) return;
  const SpanScope span(profiler_.recorder(), kTrack, "postprocess");
  note_times(*completed);
  if (completed->step->empty()) return;  // a dummy, of which the scheduler knows nothing
  grammar_rests_.note(completed->collected.duration, completed->collected.output.sequences);
  for (SequenceUpdate& update :
       scheduler_.postprocess(*completed->step, std::move(completed->collected.output))) {
    RequestDelta& delta = add_delta(update.id, update.finish_reason);
    delta.token_ids = std::move(update.token_ids);
    delta.logprobs = std::move(update.logprobs);
    delta.prompt_logprobs = std::move(update.prompt_logprobs);
    delta.stop_token_id = update.stop_token_id;
    delta.num_cached_tokens = update.num_cached_prompt_tokens;
    delta.error = std::move(update.error);
  }
}

void EngineCore::send_heartbeat_if_due() {
  ++num_ticks_;
  if (Clock::now() < heartbeat_due_) return;
  send(
      CoreHeartbeat{num_ticks_, counted_.num_steps, runner_->num_in_flight(), runner_->progress()});
}

void EngineCore::send(const CoreResponse& response) {
  send_frame(responses_, encode(response));
  heartbeat_due_ = Clock::now() + heartbeat_;
}

CoreStats EngineCore::stats() const {
  const SchedulerStats scheduler = scheduler_.stats();
  CoreStats stats = counted_;
  stats.num_running = scheduler.num_running;
  stats.num_waiting = scheduler.num_waiting;
  stats.num_free_blocks = scheduler.num_free_blocks;
  stats.num_blocks = scheduler.num_blocks;
  stats.num_state_slots = scheduler.num_state_slots;
  stats.num_free_state_slots = scheduler.num_free_state_slots;
  stats.num_state_checkpoints = scheduler.num_state_checkpoints;
  stats.num_preemptions = static_cast<uint64_t>(scheduler.num_preemptions);
  stats.num_verifications = static_cast<uint64_t>(scheduler.num_verifications);
  stats.num_draft_tokens = static_cast<uint64_t>(scheduler.num_draft_tokens);
  stats.num_accepted_tokens = static_cast<uint64_t>(scheduler.num_accepted_tokens);
  for (size_t i = 0; i < scheduler.num_accepted_at.size(); ++i) {
    stats.*CoreStats::kAcceptedAt[i] = static_cast<uint64_t>(scheduler.num_accepted_at[i]);
  }
  stats.prefix_cache_queries = static_cast<uint64_t>(scheduler.num_prefix_query_tokens);
  stats.prefix_cache_hits = static_cast<uint64_t>(scheduler.num_prefix_hit_tokens);
  stats.num_device_allocations = static_cast<uint64_t>(runner_->num_device_allocations());
  const ExpertBalancer::Figures experts = runner_->expert_figures();
  stats.num_expert_tokens = experts.num_tokens;
  stats.num_largest_expert_tokens = experts.num_largest_tokens;
  stats.num_expert_moves = experts.num_moves;
  return stats;
}

}  // namespace atom
