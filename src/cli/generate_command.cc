// atom generate: prompts in, answers out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/chat_prompt.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/follow_head.h"
#include "cli/json_output.h"
#include "cli/profile_run.h"
#include "cli/progress_bar.h"
#include "cli/prompts.h"
#include "cli/report.h"
#include "cli/request_stream.h"
#include "cli/sampling_flags.h"
#include "cli/start_engine.h"
#include "cli/style.h"
#include "cli/terminal.h"
#include "cli/usage_line.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kGenerateDescription =
    "Completes prompts, or with --chat answers them through the checkpoint's chat template. One "
    "prompt streams to standard output, followed by a line of figures on standard error; several "
    "are served together and printed in order. A bad prompt gets its error and exit code 1; the "
    "others are served.\n"
    "PROMPT - is all of standard input.";

struct GenerateOptions {
  EngineConfig config;
  SamplingFlags sampling;
  std::string prompts_file;
  bool chat = false;
  std::string system;
  std::string chat_template_kwargs;
  bool json = false;
};

class GenerateRun {
 public:
  GenerateRun(const GenerateOptions& options, std::unique_ptr<LLMEngine> engine)
      : options_(options), engine_(std::move(engine)) {}

  int run(const std::vector<PromptEntry>& entries) {
    const int32_t max_model_len = engine_->config().max_model_len();
    if (Status status = options_.sampling.check_length(max_model_len); !status.ok()) {
      return fail(status);
    }
    sampling_ = options_.sampling.apply(engine_->default_sampling(), engine_->generation_config());
    if (options_.chat) {
      Result<ChatPrompt> chat = ChatPrompt::create(engine_.get(), options_.chat_template_kwargs);
      if (!chat.ok()) return fail(chat.status());
      chat_ = *std::move(chat);
    }
    std::vector<PromptEntry> prompts;
    for (const PromptEntry& entry : entries) prompts.push_back(prepare(entry));
    if (Status status = start_profile(engine_.get()); !status.ok()) return fail(status);
    const bool streams = prompts.size() == 1 && sampling_.n == 1 && !options_.json;
    const int exit_code = streams ? stream(prompts[0]) : serve_batch(prompts);
    const Status profiled = finish_profile(engine_.get());
    return profiled.ok() ? exit_code : fail(profiled);
  }

 private:
  PromptEntry prepare(const PromptEntry& entry) const {
    if (!entry.ok()) return entry;
    ASSIGN_OR_RETURN(Prompt prompt, render(*entry));
    RETURN_IF_ERROR(check_room(prompt));
    return prompt;
  }

  // The prompt as the model gets it.
  Result<Prompt> render(const Prompt& entry) const {
    if (!chat_) return entry;
    const auto* text = std::get_if<std::string>(&entry);
    if (text == nullptr)
      return invalid_argument("--chat takes texts, and this prompt is token ids");
    std::vector<ChatMessage> messages;
    if (!options_.system.empty()) messages.push_back({"system", options_.system});
    messages.push_back({"user", *text});
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, chat_->render(messages));
    return Prompt(std::move(ids));
  }

  // As the server says it; a prompt that is too long by itself is the engine's to refuse.
  Status check_room(const Prompt& prompt) const {
    const std::optional<int32_t> max_tokens = options_.sampling.given_max_tokens();
    if (!max_tokens) return {};
    size_t size = 0;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       engine_->tokenize(*text, /*add_special_tokens=*/true));
      size = ids.size();
    } else {
      size = std::get<std::vector<int32_t>>(prompt).size();
    }
    const int64_t limit = engine_->config().max_model_len();
    const int64_t room = limit - static_cast<int64_t>(size);
    if (room <= 0 || *max_tokens <= room) return {};
    return invalid_argument(
        "--max-tokens is {}, and a prompt of {} tokens leaves room for {} of the model's {}",
        *max_tokens,
        size,
        room,
        limit);
  }

  // What to print of an answer, or of a piece of one.
  std::string shown(const std::string& text, const std::vector<int32_t>& ids) const {
    if (engine_->tokenizer() == nullptr) return fmt::format("{}", fmt::join(ids, " "));
    return is_terminal(stdout) ? printable(text, /*keep_layout=*/true) : text;
  }

  int stream(const PromptEntry& prompt) {
    if (!prompt.ok()) return fail(prompt.status());
    Result<std::unique_ptr<RequestStream>> started =
        RequestStream::start(engine_.get(), *prompt, sampling_);
    if (!started.ok()) return fail(started.status());
    RequestStream& request = **started;
    bool first = true;
    for (bool finished = false; !finished;) {
      const RequestStream::Piece piece = request.next(std::chrono::seconds(1));
      finished = piece.finished;
      std::string text = shown(piece.text, piece.token_ids);
      if (engine_->tokenizer() == nullptr && !first && !text.empty()) text.insert(0, " ");
      first &= text.empty();
      if (!text.empty() && !write_out(text)) return end_of_output();
    }
    if (!write_out("\n")) return end_of_output();
    if (!request.output().status.ok()) return fail(request.output().status);
    note(usage_line(request.output()));
    return kExitOk;
  }

  int serve_batch(const std::vector<PromptEntry>& entries) {
    std::vector<Prompt> prompts;
    for (const PromptEntry& entry : entries) {
      if (entry.ok()) prompts.push_back(*entry);
    }
    ProgressBar bar("answering", prompts.size(), ProgressUnit::kCount);
    const std::vector<RequestOutput> served =
        engine_->generate(prompts, std::span(&sampling_, 1), [&](size_t) { bar.advance(1); });
    bar.finish();
    bool all_ok = true;
    size_t next = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      RequestOutput refused;
      refused.status = entries[i].status();
      const RequestOutput& output = entries[i].ok() ? served[next++] : refused;
      all_ok &= output.status.ok();
      if (!print(i, output)) return end_of_output();
    }
    if (!options_.json && !served.empty()) note(usage_line(served));
    return all_ok ? kExitOk : kExitError;
  }

  bool print(size_t index, const RequestOutput& output) const {
    if (options_.json) {
      return write_out(to_line(request_json(index, output, engine_->tokenizer().get())));
    }
    if (!output.status.ok()) {
      (void)fail(output.status.with_context(fmt::format("prompt {}", index + 1)));
      return true;
    }
    for (const CompletionOutput& answer : output.outputs) {
      if (!write_out(shown(answer.text, answer.token_ids) + "\n")) return false;
    }
    return true;
  }

  const GenerateOptions& options_;
  std::unique_ptr<LLMEngine> engine_;
  SamplingParams sampling_;
  std::optional<ChatPrompt> chat_;
};

int run_generate(GenerateOptions* options, std::vector<std::string> arguments) {
  const auto usage = [](const Status& status) { return fail_usage("generate", status); };
  EngineConfig& config = options->config;
  if (Status status = take_checkpoint(&arguments, &config); !status.ok()) return usage(status);
  if (arguments.empty() && options->prompts_file.empty()) {
    return usage(invalid_argument(
        "no prompt: give one behind CHECKPOINT, '-' for standard input, or --prompts-file"));
  }
  if (options->sampling.asks_for_logprobs() && !options->json) {
    return usage(invalid_argument("--logprobs and --prompt-logprobs need --json to show them"));
  }
  if (!options->chat &&
      !(options->system + options->chat_template_kwargs + config.model.chat_template).empty()) {
    return usage(
        invalid_argument("--system, --chat-template and --chat-template-kwargs need --chat"));
  }
  if (!config.nodes.is_head()) return follow_head(config);
  const Result<std::vector<PromptEntry>> prompts =
      read_prompts(arguments, options->prompts_file, config.model.skip_tokenizer_init);
  if (!prompts.ok()) return fail(prompts.status());
  if (prompts->empty()) return fail(invalid_argument("there is no prompt in the input"));
  // All of them queue at once.
  constexpr int64_t kMaxWaiting = 1 << 24;
  config.scheduler.max_num_waiting = static_cast<int32_t>(
      std::clamp<int64_t>(static_cast<int64_t>(prompts->size()) * SamplingParams::kMaxN,
                          config.scheduler.max_num_waiting,
                          kMaxWaiting));
  Result<std::unique_ptr<LLMEngine>> engine = start_engine(config);
  if (!engine.ok()) return fail(engine.status());
  return GenerateRun(*options, *std::move(engine)).run(*prompts);
}

}  // namespace

Command make_generate_command() {
  const auto options = std::make_shared<GenerateOptions>();
  Command command;
  command.name = "generate";
  command.arguments = "CHECKPOINT [PROMPT...]";
  command.summary = "complete prompts, or answer them with --chat";
  command.description = kGenerateDescription;
  command.options = {
      text_option("--prompts-file",
                  "Input",
                  "FILE",
                  "Further prompts, one per line, or as JSON Lines: {\"prompt\": TEXT} or "
                  "{\"prompt_token_ids\": [ID, ...]}; - is standard input.",
                  &options->prompts_file),
      switch_option("--chat", "Input", "Render each prompt as a user's message.", &options->chat),
      text_option("--system", "Input", "TEXT", "System message before it.", &options->system),
      text_option("--chat-template-kwargs",
                  "Input",
                  "JSON",
                  "Object with further variables of the chat template.",
                  &options->chat_template_kwargs),
      switch_option("--json", "Output", "One JSON object per prompt and line.", &options->json)};
  for (Option& option : options->sampling.options(/*for_generate=*/true)) {
    command.options.push_back(std::move(option));
  }
  for (Option& option : engine_flags(kCommandGenerate, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_generate(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
