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

bool EngineCore::serve(const ResolvedConfig& config,
                       int64_t num_sampled_ids,
                       zmq::context_t& context,
                       const EngineCoreEndpoints& endpoints) {
  zmq::socket_t requests =
      connect(context, zmq::socket_type::dealer, endpoints.requests, endpoints.identity);
  zmq::socket_t responses = connect(context, zmq::socket_type::push, endpoints.responses);
  const auto progress = [&](const StartProgress& start) {
    const bool has_weights = start.stage == StartProgress::Stage::kGraphs;
    const LoadingStage stage = has_weights ? LoadingStage::kGraphs : LoadingStage::kWeights;
    send_frame(responses, encode(CoreResponse(CoreLoading{stage, start.done, start.total})));
  };
  // Who waits for other nodes lives, though nothing is loaded yet.
  Clock::time_point told;
  const auto waits = [&] {
    if (Clock::now() - told < kWaitingBeat) return true;
    told = Clock::now();
    send_frame(responses, encode(CoreResponse(CoreHeartbeat{})));
    return true;
  };
  Profiler profiler(config);
  Result<std::unique_ptr<RunnerGroup>> runner =
      RunnerGroup::create(config, num_sampled_ids, progress, profiler.recorder(), waits);
  if (!runner.ok()) {
    report_failure(context, endpoints, runner.status());
    return false;
  }
  const MemoryPlan plan = (*runner)->memory_plan();
  EngineCore core(with_memory(config, plan),
                  num_sampled_ids,
                  &profiler,
                  std::move(*runner),
                  std::move(requests),
                  std::move(responses),
                  endpoints.heartbeat);
  core.send(ready_message(plan));
  const Status status = core.loop();
  if (!status.ok()) {
    report_failure(context, endpoints, status);
  } else {
    core.runner_->end();
  }
  return status.ok();
}

EngineCore::EngineCore(const ResolvedConfig& config,
                       int64_t num_sampled_ids,
                       Profiler* profiler,
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
      heartbeat_(heartbeat) {}

Status EngineCore::loop() {
  while (!stopping_) {
    receive_requests();
    admit_compiled();
    submit_steps();
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
  if (runner_->num_in_flight() == 0 && !scheduler_.has_work()) {
    was_idle_ = true;
    timeout = std::chrono::ceil<std::chrono::milliseconds>(heartbeat_due_ - Clock::now());
    if (profiler_.is_writing()) timeout = std::min(timeout, kWritingPoll);
    if (compile_queue_.is_busy()) timeout = std::min(timeout, kCompilingPoll);
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

void EngineCore::handle(CoreRequest request) {
  if (auto* add = std::get_if<AddRequest>(&request)) {
    take(std::move(*add));
  } else if (auto* aborted = std::get_if<AbortRequests>(&request)) {
    for (const SequenceId id : aborted->ids) abort(id);
  } else if (const auto* profile = std::get_if<ControlProfile>(&request)) {
    control_profile(profile->action);
  } else {
    stopping_ = true;
  }
}

void EngineCore::take(AddRequest add) {
  Status status = add.sampling.validate(config_.model.vocab_size);
  if (status.ok() && !add.sampling.seed) {
    status = internal_error("a request came without a seed");
  }
  if (status.ok() && queueing_.contains(add.id)) {
    status = invalid_argument("request id {} is in use; ids of live requests are distinct", add.id);
  }
  const auto max_waiting = static_cast<size_t>(config_.scheduler.max_num_seqs) +
                           static_cast<size_t>(config_.scheduler.max_num_waiting);
  if (status.ok() && compiling_.size() >= max_waiting) {
    status = resource_exhausted("{} requests wait for their grammars: try again later",
                                compiling_.size());
  }
  if (!status.ok()) return refuse(add.id, status);
  queueing_[add.id].arrival = Clock::now();
  if (add.sampling.structural_tag.empty()) return admit(std::move(add), {nullptr});
  // One that is compiled does not wait: it starts with those that came together with it.
  std::shared_ptr<const CompiledGrammar> grammar = compile_queue_.find(add.sampling.structural_tag);
  if (grammar == nullptr) compile_queue_.submit(add.id, add.sampling.structural_tag);
  // Other nodes compile it themselves.
  if (config_.engine.nodes.num_nodes == 1) add.sampling.structural_tag.clear();
  if (grammar != nullptr) return admit(std::move(add), std::move(grammar));
  compiling_.emplace(add.id, std::move(add));
}

void EngineCore::admit_compiled() {
  if (!compile_queue_.is_busy()) return;
  for (CompileQueue::Done& done : compile_queue_.take_done()) {
    const auto waiting = compiling_.find(done.id);
    if (waiting == compiling_.end()) continue;  // aborted meanwhile
    AddRequest add = std::move(waiting->second);
    compiling_.erase(waiting);
    admit(std::move(add), std::move(done.grammar));
  }
}

void EngineCore::admit(AddRequest add, Result<std::shared_ptr<const CompiledGrammar>> grammar) {
  Status status = grammar.status();
  if (status.ok()) {
    status = scheduler_.add(add.id,
                            std::move(add.prompt_token_ids),
                            std::move(add.sampling),
                            std::move(grammar).value());
  }
  if (status.ok()) return;
  queueing_.erase(add.id);
  refuse(add.id, status);
}

void EngineCore::refuse(SequenceId id, const Status& status) {
  RequestDelta& delta = outbox_.deltas.emplace_back();
  delta.id = id;
  delta.finish_reason = FinishReason::kError;
  delta.error_code = status.code();
  delta.error = status.message();
}

void EngineCore::abort(SequenceId id) {
  if (compiling_.erase(id) > 0 || scheduler_.abort(id)) add_delta(id, FinishReason::kAbort);
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

void EngineCore::submit_steps() {
  while (scheduler_.can_schedule()) {
    SchedulerOutput step = [this] {
      const SpanScope span(profiler_.recorder(), kTrack, "schedule");
      return scheduler_.schedule();
    }();
    if (step.empty()) return;
    for (const NewSequence& sequence : step.new_sequences) {
      Queueing& queueing = queueing_[sequence.id];
      if (queueing.duration.count() == 0) queueing.duration = Clock::now() - queueing.arrival;
    }
    note_drafting(step);
    runner_->submit(std::move(step));
  }
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
  return stats;
}

}  // namespace atom
