// atom serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <poll.h>

#include <csignal>
#include <memory>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_deadline.h"
#include "cli/follow_head.h"
#include "cli/interrupts.h"
#include "cli/report.h"
#include "cli/serve_flags.h"
#include "cli/start_engine.h"
#include "config/flags.h"
#include "server/memory_trimmer.h"
#include "server/server.h"

namespace atom::cli {
namespace {

constexpr const char* kServeDescription =
    "Serves a model over HTTP with OpenAI's API: /v1/chat/completions, /v1/completions, "
    "/v1/models, /tokenize, /detokenize, /metrics, /openapi.json and others. The engine runs in a "
    "process of its own that is started again when it dies. SIGTERM or Ctrl-C lets running answers "
    "finish within --shutdown-timeout; a second one stops at once. SIGHUP reads API keys and "
    "certificates again.";

constexpr std::chrono::milliseconds kTick{100};
// What an end takes beyond the answers that are waited for, at the most.
constexpr std::chrono::milliseconds kEndTime{900};

struct ServeOptions {
  EngineConfig config;
  ServeFlags flags;
};

std::string address(const server::ServerOptions& options, uint16_t port) {
  if (!options.http.unix_socket.empty()) return "unix:" + options.http.unix_socket;
  const char* scheme = options.http.tls_certificate_file.empty() ? "http" : "https";
  const std::string& host = options.http.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", scheme, is_ipv6 ? "[" + host + "]" : host, port);
}

// True when there was one within the time.
bool wait_for_interrupt(Interrupts* interrupts, std::chrono::milliseconds timeout) {
  pollfd descriptor = {interrupts->fd(), POLLIN, 0};
  return poll(&descriptor, 1, static_cast<int>(timeout.count())) > 0 && interrupts->take();
}

void reload(server::Server* server) {
  if (const Status status = server->reload(); status.ok()) {
    log::info("API keys and certificates were read again");
  } else {
    log::error("API keys and certificates stay as they were: {}", status.message());
  }
}

// Until a signal, kExitOk; or until the engine is given up, kExitError.
int wait_for_end(server::Server* server, Interrupts* interrupts, Interrupts* hangups) {
  for (;;) {
    if (wait_for_interrupt(interrupts, kTick)) return kExitOk;
    if (hangups->take()) reload(server);
    const EngineHealth health = server->engine().health();
    if (health.state == EngineState::kFailed) return fail(unavailable("{}", health.reason));
  }
}

void drain(server::Server* server,
           std::chrono::milliseconds timeout,
           Interrupts* interrupts,
           ExitDeadline* exit_deadline) {
  log::info("stopping: running answers may finish; once more stops at once");
  server->drain();
  const auto deadline = ExitDeadline::Clock::now() + timeout;
  exit_deadline->set(deadline + kEndTime, kExitOk);
  while (!server->wait_until_idle(kTick)) {
    if (interrupts->take()) {
      log::info("stopped at once");
      break;
    }
    if (ExitDeadline::Clock::now() > deadline) {
      log::warning("stopped: --shutdown-timeout is over");
      break;
    }
  }
  exit_deadline->set(ExitDeadline::Clock::now() + kEndTime, kExitOk);
}

int run_serve(ServeOptions* options, std::vector<std::string> arguments) {
  const std::string given = arguments.empty() ? options->config.model.model : arguments.front();
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("serve", status);
  }
  if (Status status = refuse_arguments(arguments); !status.ok()) {
    return fail_usage("serve", status);
  }
  Result<server::ServerOptions> server_options = options->flags.to_options(given);
  if (!server_options.ok()) return fail_usage("serve", server_options.status());
  if (!options->config.nodes.is_head()) return follow_head(options->config);
  if (options->config.log_level.empty() && env().log_level.empty()) {
    options->config.log_level = "info";
  }
  server::set_up_allocator();
  ExitDeadline exit_deadline;
  Interrupts interrupts{SIGINT, SIGTERM};
  Interrupts hangups{SIGHUP};
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGUSR2, SIG_IGN);
  Result<std::unique_ptr<LLMEngine>> engine = [&] {
    const LetInterruptsThrough guard{SIGINT, SIGTERM};
    CoreLaunch launch;
    launch.child_process = true;
    return start_engine(options->config, launch, [&](const ModelSourceConfig& model) {
      return server::Server::check(model, *server_options);
    });
  }();
  if (!engine.ok()) return fail(engine.status());
  Result<std::unique_ptr<server::Server>> server =
      server::Server::start(std::move(*engine), *server_options);
  if (!server.ok()) return fail(server.status());
  if (!(*server)->why_no_chat().empty()) {
    log::warning("no chat completions: {}", (*server)->why_no_chat());
  }
  log::info("serving {} at {}",
            server_options->served_model_names.front(),
            address(*server_options, (*server)->port()));
  const int exit_code = wait_for_end(server->get(), &interrupts, &hangups);
  if (exit_code == kExitOk) {
    drain(server->get(), server_options->shutdown_timeout, &interrupts, &exit_deadline);
  }
  return exit_code;
}

}  // namespace

Command make_serve_command() {
  const auto options = std::make_shared<ServeOptions>();
  Command command;
  command.name = "serve";
  command.arguments = "CHECKPOINT";
  command.summary = "serve a model over HTTP with OpenAI's API";
  command.description = kServeDescription;
  command.options = options->flags.make_options();
  for (Option& option : engine_flags(kCommandServe, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_serve(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
