#include "cli/request_stream.h"

#include <utility>

namespace atom::cli {

Result<std::unique_ptr<RequestStream>> RequestStream::start(LLMEngine* engine,
                                                            const Prompt& prompt,
                                                            const SamplingParams& sampling) {
  auto state = std::make_shared<State>();
  const auto on_output = [state](const RequestOutput& output, const RequestUpdate& update) {
    const MutexLock lock(&state->mutex);
    Piece& pending = state->pending;
    if (update.index == 0) {
      pending.text += update.text;
      pending.token_ids.insert(
          pending.token_ids.end(), update.token_ids.begin(), update.token_ids.end());
    }
    if (output.finished) {
      pending.finished = true;
      state->output = output;
    }
    state->changed.notify_one();
  };
  ASSIGN_OR_RETURN(const RequestId id, engine->submit(prompt, sampling, on_output));
  std::unique_ptr<RequestStream> stream(new RequestStream(engine, std::move(state)));
  stream->id_ = id;
  return stream;
}

RequestStream::~RequestStream() {
  if (!finished_) abort();
}

RequestStream::Piece RequestStream::next(std::chrono::milliseconds timeout) {
  MutexLock lock(&state_->mutex);
  Piece& pending = state_->pending;
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!pending.finished && pending.token_ids.empty()) {
    if (state_->changed.wait_until(&lock, end) == std::cv_status::timeout) break;
  }
  finished_ = pending.finished;
  return std::exchange(pending, Piece{});
}

const RequestOutput& RequestStream::output() const {
  const MutexLock lock(&state_->mutex);
  return state_->output;  // constant from then on
}

}  // namespace atom::cli
