// The OpenAI-compatible server: engine, endpoints and HTTP put together.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "engine/llm_engine.h"
#include "server/server_options.h"

namespace atom::server {

class Server {
 public:
  // What start() would say of the options, before an engine is loaded: names of parsers, the chat
  // template, an address that cannot be listened on.
  static Status check(const ModelSourceConfig& model, const ServerOptions& options);
  // Serves when this returns.
  static Result<std::unique_ptr<Server>> start(std::unique_ptr<LLMEngine> engine,
                                               const ServerOptions& options);
  // What is unfinished ends with an error.
  ~Server();

  uint16_t port() const;
  const LLMEngine& engine() const;
  // Why /v1/chat/completions is not served; empty when it is.
  const std::string& why_no_chat() const;

  // Reads the file of API keys and those of TLS again. An error leaves all as it was.
  Status reload();

  // From now on new requests get 503 and readiness is off; running answers go on. Any thread.
  void drain();
  // Waits until no request is being answered; false after `timeout`.
  bool wait_until_idle(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace atom::server
