#include "bench_serve/prompt_files.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "bench_serve/length_distribution.h"

namespace atom::bench_serve {
namespace {

constexpr size_t kMaxFileSize = size_t{4} << 30;
constexpr size_t kMaxPrompts = 4'000'000;
constexpr size_t kMaxDepth = 64;
constexpr JsonLimits kLineLimits = {.max_bytes = 64 << 20, .max_nodes = 2'000'000};

// ShareGPT's own rules, which benchmarks of serving share.
constexpr int32_t kMinTurn = 4;
constexpr int32_t kMaxPrompt = 1024;
constexpr int32_t kMaxTotal = 2048;

using Turns = std::pair<std::string, std::string>;

// Keeps the first two turns of every conversation; no tree of the file is made.
class ShareGptReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<Turns> take() { return std::move(conversations_); }
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool string(std::string& value) override {
    // [ { "conversations" [ { "value"
    if (stack_.size() != 4 || !in_turns_) return true;
    if (key_ != "value" && key_ != "content") return true;
    if (num_turns_ == 0) turns_.first = std::move(value);
    if (num_turns_ == 1) turns_.second = std::move(value);
    ++num_turns_;
    return true;
  }

  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(size_t) override { return open('{'); }
  bool start_array(size_t) override {
    const bool is_turns = stack_ == "[{" && (key_ == "conversations" || key_ == "messages");
    if (is_turns) num_turns_ = 0;
    in_turns_ |= is_turns;
    return open('[');
  }

  bool end_object() override {
    stack_.pop_back();
    return true;
  }

  bool end_array() override {
    stack_.pop_back();
    if (stack_ != "[{" || !in_turns_) return true;
    in_turns_ = false;
    if (num_turns_ < 2) return true;
    if (conversations_.size() >= kMaxPrompts) return fail("has too many conversations");
    conversations_.push_back(std::move(turns_));
    return true;
  }

  bool parse_error(size_t position,
                   const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format("is no JSON at byte {}", position));
  }

 private:
  bool open(char kind) {
    if (stack_.empty() && kind != '[') return fail("is no array of conversations");
    if (stack_.size() >= kMaxDepth) return fail("is nested too deeply");
    stack_ += kind;
    return true;
  }

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  std::vector<Turns> conversations_;
  std::string stack_;  // the brackets that are open
  std::string key_;
  Turns turns_;
  size_t num_turns_ = 0;
  bool in_turns_ = false;
  std::string error_;
};

// Fisher and Yates; std::shuffle leaves the order to the library.
template <typename T>
void shuffle(std::vector<T>* values, Random* random) {
  for (size_t i = values->size(); i > 1; --i)
    std::swap((*values)[i - 1], (*values)[random->index(i)]);
}

// A file with fewer prompts than wanted is gone through again.
std::vector<Prompt> repeated(std::vector<Prompt> prompts, size_t count) {
  const size_t size = prompts.size();
  prompts.reserve(count);
  for (size_t i = size; i < count; ++i) prompts.push_back(prompts[i % size]);
  prompts.resize(count);
  return prompts;
}

Status line_error(const PromptFileOptions& options, size_t line, const std::string& message) {
  return invalid_argument("{}:{}: {}", options.path, line, message);
}

Status read_token_ids(const Json& json, Prompt* prompt) {
  for (const Json& id : json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return invalid_argument("\"prompt\" holds something else than token ids");
    }
    prompt->token_ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return {};
}

Result<Prompt> read_json_prompt(const Json& json, const PromptFileOptions& options) {
  Prompt prompt;
  const auto text = json.find("prompt");
  const auto messages = json.find("messages");
  if (messages != json.end() && messages->is_array() && !messages->empty()) {
    prompt.messages_json = messages->dump();
    prompt.prompt_len = options.count_tokens(prompt.messages_json);
  } else if (text != json.end() && text->is_string() &&
             !text->get_ref<const std::string&>().empty()) {
    prompt.text = text->get<std::string>();
  } else if (text != json.end() && text->is_array() && !text->empty()) {
    RETURN_IF_ERROR(read_token_ids(*text, &prompt));
    prompt.prompt_len = static_cast<int32_t>(prompt.token_ids.size());
  } else {
    return invalid_argument("no \"prompt\" (text or token ids) and no \"messages\"");
  }
  for (const char* name : {"output_tokens", "output_len", "max_tokens"}) {
    const auto length = json.find(name);
    if (length == json.end() || length->is_null()) continue;
    if (!length->is_number_unsigned() || length->get<uint64_t>() < 1 ||
        length->get<uint64_t>() > kMaxLength) {
      return invalid_argument("\"{}\" is no length from 1 to {}", name, kMaxLength);
    }
    prompt.output_len = static_cast<int32_t>(length->get<uint64_t>());
  }
  return prompt;
}

Result<Prompt> read_line(std::string_view line, const PromptFileOptions& options) {
  if (!line.starts_with('{')) {
    Prompt prompt;
    prompt.text = line;
    return prompt;
  }
  const Result<Json> json = parse_json(line, "the line", kLineLimits);
  if (!json.ok()) return json.status();
  return read_json_prompt(*json, options);
}

}  // namespace

Result<std::vector<Prompt>> load_sharegpt(const PromptFileOptions& options, Random* random) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const FileBytes> file,
                   FileBytes::open(options.path, true));
  if (file->size() > kMaxFileSize) {
    return resource_exhausted("{}: larger than {} bytes", options.path, kMaxFileSize);
  }
  const char* begin = reinterpret_cast<const char*>(file->data());
  ShareGptReader reader;
  // Not Json::sax_parse(), for the reason that base/json.cc gives.
  auto input = nlohmann::detail::input_adapter(begin, begin + file->size());
  if (!nlohmann::detail::parser<Json, decltype(input)>(std::move(input)).sax_parse(&reader)) {
    return invalid_argument(
        "{}: {}; expected an array of {{\"conversations\": [{{\"from\": ..., "
        "\"value\": ...}}]}}",
        options.path,
        reader.error().empty() ? "is no JSON" : reader.error());
  }
  std::vector<Turns> conversations = reader.take();
  if (options.shuffle) shuffle(&conversations, random);
  std::vector<Prompt> prompts;
  for (Turns& turns : conversations) {
    if (prompts.size() == options.count) break;
    Prompt prompt;
    prompt.prompt_len = options.count_tokens(turns.first);
    prompt.output_len =
        options.output_len > 0 ? options.output_len : options.count_tokens(turns.second);
    if (prompt.prompt_len < kMinTurn || prompt.prompt_len > kMaxPrompt) continue;
    if (options.output_len == 0 && prompt.output_len < kMinTurn) continue;
    if (prompt.prompt_len + prompt.output_len > kMaxTotal) continue;
    prompt.text = std::move(turns.first);
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return invalid_argument("{}: none of its {} conversations of two turns has a usual length",
                            options.path,
                            conversations.size());
  }
  return repeated(std::move(prompts), options.count);
}

Result<std::vector<Prompt>> load_prompt_lines(const PromptFileOptions& options, Random* random) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const FileBytes> file,
                   FileBytes::open(options.path, true));
  std::string_view text(reinterpret_cast<const char*>(file->data()), file->size());
  std::vector<Prompt> prompts;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    Result<Prompt> prompt = read_line(line, options);
    if (!prompt.ok()) return line_error(options, number, prompt.status().message());
    if (prompt->prompt_len == 0) prompt->prompt_len = options.count_tokens(prompt->text);
    if (options.output_len > 0) prompt->output_len = options.output_len;
    if (prompt->output_len == 0) prompt->output_len = options.default_output_len;
    prompts.push_back(*std::move(prompt));
    if (prompts.size() > kMaxPrompts) {
      return resource_exhausted("{}: more than {} prompts", options.path, kMaxPrompts);
    }
    if (!options.shuffle && prompts.size() == options.count) break;
  }
  if (prompts.empty()) return invalid_argument("{}: no prompt in it", options.path);
  if (options.shuffle) shuffle(&prompts, random);
  return repeated(std::move(prompts), options.count);
}

}  // namespace atom::bench_serve
