// The server in front of an engine that computes nothing (stub_engine_core.cc): tokenizer, HTTP,
// JSON and the messages between the processes are what is left to measure.
// usage: frontend_server CHECKPOINT STUB_ENGINE_CORE [PORT]
#include <fmt/core.h>

#include <csignal>
#include <cstdlib>

#include "engine/llm_engine.h"
#include "server/server.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: frontend_server CHECKPOINT STUB_ENGINE_CORE [PORT]\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  atom::EngineConfig config;
  config.model.model = argv[1];
  config.scheduler.max_num_seqs = 256;
  atom::LLMEngineOptions options;
  options.launch.child_process = true;
  options.launch.executable = argv[2];
  auto engine = atom::LLMEngine::create(config, std::move(options));
  if (!engine.ok()) {
    fmt::print(stderr, "frontend_server: {}\n", engine.status().message());
    return 1;
  }
  atom::server::ServerOptions server_options;
  server_options.served_model_names = {"stub"};
  server_options.http.port = static_cast<uint16_t>(argc > 3 ? std::atoi(argv[3]) : 0);
  const auto server = atom::server::Server::start(std::move(*engine), server_options);
  if (!server.ok()) {
    fmt::print(stderr, "frontend_server: {}\n", server.status().message());
    return 1;
  }
  fmt::print(stderr, "serving stub at http://127.0.0.1:{}\n", (*server)->port());
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}
