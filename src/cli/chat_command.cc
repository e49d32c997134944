// atom chat: a conversation in the terminal.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/env.h"
#include "cli/chat_loop.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/report.h"
#include "cli/sampling_flags.h"
#include "cli/start_engine.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kChatDescription =
    "Talks to a model. Ctrl-C stops an answer; at the prompt it clears what is typed, and Ctrl-C, "
    "Ctrl-D or /exit leave. /help lists what else can be typed. Standard input that is no terminal "
    "is read as one message per "
    "line.";

struct ChatOptions {
  EngineConfig config;
  SamplingFlags sampling;
  std::string system;
  std::string chat_template_kwargs;
  bool no_history = false;
};

// The file that keeps what is typed; empty: nothing is kept.
std::string history_file(const ChatOptions& options) {
  if (options.no_history || env().state_folder.empty()) return "";
  return env().state_folder + "/chat_history";
}

int run_chat(ChatOptions* options, std::vector<std::string> arguments) {
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("chat", status);
  }
  if (Status status = refuse_arguments(arguments); !status.ok()) return fail_usage("chat", status);
  Interrupts interrupts;
  Result<std::unique_ptr<LLMEngine>> engine = [&] {
    const LetInterruptsThrough guard;
    return start_engine(options->config);
  }();
  if (!engine.ok()) return fail(engine.status());
  Result<ChatPrompt> chat = ChatPrompt::create(engine->get(), options->chat_template_kwargs);
  if (!chat.ok()) return fail(chat.status());
  ChatLoop loop(
      engine->get(),
      *std::move(chat),
      options->sampling.apply((*engine)->default_sampling(), (*engine)->generation_config()),
      options->system,
      history_file(*options),
      &interrupts);
  return loop.run();
}

}  // namespace

Command make_chat_command() {
  const auto options = std::make_shared<ChatOptions>();
  Command command;
  command.name = "chat";
  command.arguments = "CHECKPOINT";
  command.summary = "talk to a model in the terminal";
  command.description = kChatDescription;
  command.options = {
      text_option("--system", "Conversation", "TEXT", "System message.", &options->system),
      text_option("--chat-template-kwargs",
                  "Conversation",
                  "JSON",
                  "Object with further variables of the chat template.",
                  &options->chat_template_kwargs),
      switch_option("--no-history",
                    "Conversation",
                    "Do not keep what is typed for the next start (docs/environment.md).",
                    &options->no_history)};
  for (Option& option : options->sampling.options(/*for_generate=*/false)) {
    command.options.push_back(std::move(option));
  }
  for (Option& option : engine_flags(kCommandChat, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_chat(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
