// A request whose answer is read piece by piece on the thread of the command, which may then write
// to the terminal as slowly as that takes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "engine/llm_engine.h"

namespace atom::cli {

class RequestStream {
 public:
  // The engine outlives the stream.
  static Result<std::unique_ptr<RequestStream>> start(LLMEngine* engine,
                                                      const Prompt& prompt,
                                                      const SamplingParams& sampling);
  // Aborts what is unfinished.
  ~RequestStream();
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  // What is new since the last call; waits for it up to `timeout`. The request's first answer only.
  struct Piece {
    std::string text;
    std::vector<int32_t> token_ids;
    bool finished = false;
  };
  Piece next(std::chrono::milliseconds timeout);

  void abort() { engine_->abort(id_); }

  // Once finished.
  const RequestOutput& output() const;

 private:
  // Shared with the callback, which may outlive the stream.
  struct State {
    Mutex mutex;
    Condition changed;
    Piece pending GUARDED_BY(mutex);
    RequestOutput output GUARDED_BY(mutex);
  };

  RequestStream(LLMEngine* engine, std::shared_ptr<State> state)
      : engine_(engine), state_(std::move(state)) {}

  LLMEngine* const engine_;
  const std::shared_ptr<State> state_;
  RequestId id_ = 0;
  bool finished_ = false;
};

}  // namespace atom::cli
