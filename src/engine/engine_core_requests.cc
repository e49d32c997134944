// How an EngineCore takes requests, up to its scheduler.
#include <utility>

#include "engine/engine_core.h"

namespace atom {

void EngineCore::handle(CoreRequest request) {
  if (lockstep_) num_exchanges_due_ = 2;
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

}  // namespace atom
