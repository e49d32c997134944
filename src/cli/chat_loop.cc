#include "cli/chat_loop.h"

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cli/report.h"
#include "cli/request_stream.h"
#include "cli/terminal.h"
#include "cli/usage_line.h"
#include "config/suggest.h"

namespace atom::cli {
namespace {

// How long Ctrl-C may go unnoticed while nothing is generated.
constexpr std::chrono::milliseconds kInterruptLatency{50};

constexpr int kPromptWidth = 5;  // columns of "you> "

// Of at most 80 columns.
constexpr const char* kHelp =
    "/clear         forget the conversation\n"
    "/system TEXT   set the system message, or remove it without TEXT, and forget the\n"
    "               conversation\n"
    "/help          this list\n"
    "/exit          leave, as Ctrl-D does\n"
    "Ctrl-C stops an answer; at the prompt it clears what is typed, and leaves when\n"
    "nothing is. Alt-Enter, Ctrl-J, or a \\ before Enter begin a new line. The arrow\n"
    "keys bring back what was typed before. A line that begins with a space is never\n"
    "a command.\n";

}  // namespace

ChatLoop::ChatLoop(LLMEngine* engine,
                   ChatPrompt prompt,
                   SamplingParams sampling,
                   std::string system,
                   const std::string& history,
                   Interrupts* interrupts)
    : engine_(engine),
      prompt_(std::move(prompt)),
      sampling_(std::move(sampling)),
      system_(std::move(system)),
      interrupts_(interrupts),
      reader_(interrupts, history),
      interactive_(is_terminal(stdin)),
      style_(Style::for_stream(stderr)) {
  restart();
}

void ChatLoop::restart() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
}

int ChatLoop::run() {
  if (interactive_) note("Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.");
  for (;;) {
    std::string line;
    const std::string prompt = style_.green(style_.bold("you>")) + " ";
    const LineReader::Outcome outcome = reader_.read_line(prompt, kPromptWidth, &line);
    if (outcome != LineReader::Outcome::kLine) return exit_code_;
    if (line.find_first_not_of(" \t\n") == std::string::npos) continue;
    const Next next = line[0] == '/' ? obey(line) : answer(line);
    if (next == Next::kLeave) return exit_code_;
  }
}

ChatLoop::Next ChatLoop::obey(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "/exit") return Next::kLeave;
  if (command == "/clear") {
    restart();
    note("The conversation is forgotten.");
  } else if (command == "/system") {
    system_ = argument;
    restart();
    note(system_.empty() ? "No system message; the conversation is forgotten."
                         : "New system message; the conversation is forgotten.");
  } else if (command == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else {
    const std::vector<std::string> known = {"/clear", "/system", "/help", "/exit"};
    const std::string nearest = nearest_name(command, known);
    report(
        invalid_argument("unknown command '{}'; {}",
                         command,
                         nearest.empty() ? "/help lists them" : "did you mean " + nearest + "?"));
  }
  return Next::kGoOn;
}

ChatLoop::Next ChatLoop::answer(const std::string& text) {
  messages_.push_back({"user", text});
  const Result<std::vector<int32_t>> ids = prompt_.render(messages_);
  RequestOutput output;
  if (!ids.ok()) {
    output.status = ids.status();
  } else if (static_cast<int64_t>(ids->size()) >= engine_->config().max_model_len()) {
    output.status = invalid_argument(
        "the conversation has {} tokens and the model takes {}, its answer included; /clear starts "
        "a new one",
        ids->size(),
        engine_->config().max_model_len());
  } else if (!stream(*ids, &output)) {
    exit_code_ = end_of_output();
    return Next::kLeave;
  }
  if (!output.status.ok()) {
    messages_.pop_back();
    report(output.status);
    return output.status.code() == StatusCode::kUnavailable ? Next::kLeave : Next::kGoOn;
  }
  messages_.push_back({"assistant", output.outputs[0].text});
  hint_when_full(output);
  return Next::kGoOn;
}

bool ChatLoop::stream(const Prompt& prompt, RequestOutput* output) {
  Result<std::unique_ptr<RequestStream>> started = RequestStream::start(engine_, prompt, sampling_);
  if (!started.ok()) {
    output->status = started.status();
    return true;
  }
  RequestStream& request = **started;
  if (interactive_) fmt::print(stderr, "{} ", style_.cyan(style_.bold("atom>")));
  const bool to_terminal = is_terminal(stdout);
  bool stopped = false;
  for (bool finished = false; !finished;) {
    const RequestStream::Piece piece = request.next(kInterruptLatency);
    finished = piece.finished;
    if (interrupts_->take()) {
      stopped = true;
      request.abort();
    }
    if (stopped || piece.text.empty()) continue;
    if (!write_out(to_terminal ? printable(piece.text, /*keep_layout=*/true) : piece.text)) {
      return false;
    }
  }
  // One that came when the answer had ended by itself is no wish to leave.
  interrupts_->take();
  *output = request.output();
  if (!write_out("\n")) return false;
  if (output->status.ok() && is_terminal(stderr)) note(usage_line(*output));
  return true;
}

void ChatLoop::report(const Status& status) {
  const int code = fail(status);
  if (!interactive_) exit_code_ = code;
}

void ChatLoop::hint_when_full(const RequestOutput& output) const {
  const size_t num_tokens = output.prompt_token_ids.size() + output.outputs[0].token_ids.size();
  const int32_t max_model_len = engine_->config().max_model_len();
  if (static_cast<int64_t>(num_tokens) < max_model_len) return;
  note(fmt::format("The context of {} tokens is full; /clear starts a new conversation.",
                   max_model_len));
}

}  // namespace atom::cli
