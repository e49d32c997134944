#include "server/chat_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/find_text.h"
#include "server/answer_rules.h"
#include "server/openai/field_error.h"
#include "server/parsers/answer_grammar.h"
#include "structured_output/structural_tag.h"
#include "tokenizer/chat_template/find_chat_template.h"
#include "tokenizer/chat_template/prepare_messages.h"

namespace atom::server {
namespace {

Result<ChatTemplate> load_template(const ModelSourceConfig& model,
                                   bool with_tools,
                                   std::string* text) {
  ASSIGN_OR_RETURN(ChatTemplateSource source,
                   load_chat_template(model.model, model.chat_template, with_tools));
  *text = source.text;
  return ChatTemplate::parse(source.text, source.origin);
}

Result<SharedJson> parse_kwargs(const std::string& text) {
  if (text.empty()) return std::make_shared<const OrderedJson>(OrderedJson::object());
  ASSIGN_OR_RETURN(OrderedJson kwargs, parse_ordered_json(text, "--default-chat-template-kwargs"));
  if (!kwargs.is_object()) {
    return invalid_argument("--default-chat-template-kwargs: expected a JSON object");
  }
  return std::make_shared<const OrderedJson>(std::move(kwargs));
}

// What a format is made of, besides the engine.
struct Parts {
  ChatTemplate plain;
  ChatTemplate tool;
  SharedJson kwargs;
  std::unique_ptr<OutputFormat> output_format;
};

Result<Parts> load_parts(const ModelSourceConfig& model, const ServerOptions& options) {
  std::string text;
  std::string tool_text;
  ASSIGN_OR_RETURN(ChatTemplate plain, load_template(model, /*with_tools=*/false, &text));
  ASSIGN_OR_RETURN(ChatTemplate tool, load_template(model, /*with_tools=*/true, &tool_text));
  ASSIGN_OR_RETURN(SharedJson kwargs, parse_kwargs(options.default_chat_template_kwargs));
  ASSIGN_OR_RETURN(std::unique_ptr<OutputFormat> format,
                   make_output_format(options.output_format, tool_text));
  return Parts{std::move(plain), std::move(tool), std::move(kwargs), std::move(format)};
}

// The text of the last message, which an answer is to continue.
Result<std::string> final_text(const OrderedJson& messages) {
  const OrderedJson content = messages.back().value("content", OrderedJson());
  if (content.is_string()) return content.get<std::string>();
  if (content.is_array() && !content.empty() && content.back().contains("text")) {
    return content.back()["text"].get<std::string>();
  }
  return invalid_argument("continue_final_message: the last message has no text to continue");
}

// Cuts what the template wrote behind the last message's text (an end-of-turn token, mostly).
Status cut_behind(const std::string& final, std::string* text) {
  const size_t last = final.find_last_not_of(" \t\r\n");
  const std::string trimmed = final.substr(0, last == std::string::npos ? 0 : last + 1);
  const size_t found = find_last(*text, trimmed);
  if (trimmed.empty() || found == std::string::npos) {
    return invalid_argument(
        "continue_final_message: the chat template does not write the last message as it is");
  }
  const bool is_whole = text->compare(found, final.size(), final) == 0;
  text->resize(found + (is_whole ? final.size() : trimmed.size()));
  return {};
}

bool fail_choice(std::string message, ApiError* error) {
  return fail(error, FieldPath().field("tool_choice"), kInvalidValue, std::move(message));
}

bool may_call(const ToolChoice& choice, const std::string& name) {
  if (choice == ToolChoice::kNamed) return name == choice.name;
  return choice.allowed.empty() || std::ranges::find(choice.allowed, name) != choice.allowed.end();
}

// Whether the request has the tools that its choice names.
bool has_chosen_tools(const ToolChoice& choice, const OrderedJson& tools, ApiError* error) {
  std::vector<std::string> chosen = choice.allowed;
  if (choice == ToolChoice::kNamed) chosen.push_back(choice.name);
  for (const std::string& name : chosen) {
    const bool is_there = std::ranges::any_of(
        tools, [&](const OrderedJson& tool) { return tool["function"]["name"] == name; });
    if (!is_there) {
      return fail_choice(
          fmt::format("tool_choice: '{}' is not among the tools", printable(name, 80)), error);
    }
  }
  return true;
}

// The tools that a grammar has to know, and whether the answer has to call one.
bool read_callable_tools(const ChatCompletionRequest& request,
                         AnswerGrammarRequest* asked,
                         ApiError* error) {
  const ToolChoice& choice = request.tool_choice;
  const OrderedJson* tools = request.usable_tools();
  if (tools == nullptr) {
    const bool needs_tools = choice.is_forced() || !choice.allowed.empty();
    return !needs_tools || fail_choice("tool_choice: there are no tools to call", error);
  }
  if (!has_chosen_tools(choice, *tools, error)) return false;
  bool is_any_strict = false;
  for (size_t i = 0; i < tools->size(); ++i) {
    const OrderedJson& function = (*tools)[i]["function"];
    CallableTool tool;
    tool.name = function["name"].get<std::string>();
    if (function.contains("parameters") && !function["parameters"].is_null()) {
      tool.parameters = std::make_shared<const OrderedJson>(function["parameters"]);
    }
    tool.where = fmt::format("tools[{}].function.parameters", i);
    tool.strict = function.value("strict", OrderedJson()) == true;
    is_any_strict = is_any_strict || tool.strict;
    if (may_call(choice, tool.name)) asked->tools.push_back(std::move(tool));
  }
  if (choice.is_forced()) {
    asked->calls = AnswerGrammarRequest::Calls::kForced;
  } else if (!asked->syntax.empty() &&
             (is_any_strict || !choice.allowed.empty() || asked->content != nullptr)) {
    asked->calls = AnswerGrammarRequest::Calls::kAllowed;
  }
  return true;
}

}  // namespace

ChatFormat::ChatFormat(const LLMEngine& engine,
                       ChatTemplate chat_template,
                       ChatTemplate tool_template,
                       SharedJson default_kwargs,
                       std::unique_ptr<OutputFormat> output_format)
    : engine_(engine),
      template_(std::move(chat_template)),
      tool_template_(std::move(tool_template)),
      default_kwargs_(std::move(default_kwargs)),
      output_format_(std::move(output_format)) {}

Result<std::unique_ptr<const ChatFormat>> ChatFormat::create(const LLMEngine& engine,
                                                             const ServerOptions& options) {
  const ModelSourceConfig& model = engine.config().engine.model;
  if (engine.tokenizer() == nullptr) return not_found("--skip-tokenizer-init leaves no tokenizer");
  ASSIGN_OR_RETURN(Parts parts, load_parts(model, options));
  return std::unique_ptr<const ChatFormat>(new ChatFormat(engine,
                                                          std::move(parts.plain),
                                                          std::move(parts.tool),
                                                          std::move(parts.kwargs),
                                                          std::move(parts.output_format)));
}

Status ChatFormat::check(const ModelSourceConfig& model, const ServerOptions& options) {
  RETURN_IF_ERROR(make_output_format(options.output_format, /*chat_template=*/"").status());
  if (model.skip_tokenizer_init) return {};
  const Status status = load_parts(model, options).status();
  return status.code() == StatusCode::kNotFound ? Status() : status;
}

bool ChatFormat::mark_thinking(std::string_view prompt, SamplingParams* sampling) const {
  const std::optional<ThinkingMarks> marks = output_format_->thinking_marks();
  if (!marks) return false;
  const auto ids_of = [&](const std::string& text) {
    return engine_.tokenizer()->encode(text, /*add_special_tokens=*/false).value();
  };
  sampling->thinking_begin_ids = ids_of(marks->begin);
  sampling->thinking_end_ids = ids_of(marks->end);
  sampling->thinking_closing_ids = ids_of(marks->closing);
  const std::string_view trimmed = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  sampling->starts_thinking =
      trimmed.ends_with(marks->begin) || (marks->comes_first && !trimmed.ends_with(marks->end));
  return true;
}

bool ChatFormat::limit_thinking(int32_t max_tokens,
                                std::string_view prompt,
                                SamplingParams* sampling) const {
  if (!mark_thinking(prompt, sampling)) return false;
  sampling->max_thinking_tokens = max_tokens;
  return true;
}

bool ChatFormat::constrain(const ChatCompletionRequest& request,
                           std::string_view prompt,
                           SamplingParams* sampling,
                           ApiError* error) const {
  AnswerGrammarRequest asked;
  std::optional<OrderedJson> content;
  if (!read_answer_rules(request.rules, &content, error)) return false;
  if (content) asked.content = std::make_shared<const OrderedJson>(*std::move(content));
  asked.syntax = output_format_->tool_syntax();
  asked.parallel = request.parallel_tool_calls;
  if (!read_callable_tools(request, &asked, error)) return false;
  if (asked.content == nullptr && asked.calls == AnswerGrammarRequest::Calls::kNone) return true;
  const Tokenizer& tokenizer = *engine_.tokenizer();
  for (const std::string& text : output_format_->kept_special_tokens(/*with_tools=*/true)) {
    const std::optional<int32_t> id = tokenizer.token_to_id(text);
    if (id && tokenizer.is_special(*id)) asked.special_tokens.emplace_back(text, *id);
  }
  Result<OrderedJson> format = answer_grammar(asked);
  if (!format.ok()) {
    *error = rule_error(format.status());
    return false;
  }
  OrderedJson whole = std::move(format).value();
  // Harmony's reasoning is part of its grammar.
  if (asked.syntax != "harmony" && mark_thinking(prompt, sampling)) {
    const ThinkingMarks marks = *output_format_->thinking_marks();
    // Several tokens might be others where the model writes the mark: then it is looked for as
    // text.
    sampling->thinks_before_tag = sampling->thinking_end_ids.size() == 1;
    if (!sampling->thinks_before_tag) {
      const std::string begin = sampling->starts_thinking ? "" : marks.begin;
      whole = behind_reasoning(begin, marks.end, std::move(whole));
    }
  }
  Result<std::string> tag = structural_tag_text(std::move(whole), "the answer's form");
  if (tag.ok()) {
    sampling->structural_tag = std::move(tag).value();
    return true;
  }
  *error = rule_error(tag.status());
  return false;
}

std::vector<int32_t> ChatFormat::kept_special_token_ids(bool with_tools) const {
  const Tokenizer& tokenizer = *engine_.tokenizer();
  std::vector<int32_t> ids;
  for (const std::string& token : output_format_->kept_special_tokens(with_tools)) {
    const std::optional<int32_t> id = tokenizer.token_to_id(token);
    if (id && tokenizer.is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

Result<std::string> ChatFormat::render(const ChatCompletionRequest& request,
                                       const std::atomic<bool>& gone) const {
  Conversation conversation;
  conversation.messages = request.messages.get();
  conversation.tools = request.usable_tools();
  conversation.documents = request.documents.get();
  conversation.kwargs = request.chat_template_kwargs.get();
  conversation.chat_template = &request.chat_template;
  conversation.add_generation_prompt = request.add_generation_prompt;
  conversation.continue_final_message = request.continue_final_message;
  return render(conversation, gone);
}

Result<std::string> ChatFormat::render(const TokenizeRequest& request,
                                       const std::atomic<bool>& gone) const {
  Conversation conversation;
  conversation.messages = request.messages.get();
  conversation.tools = request.tools.get();
  conversation.kwargs = request.chat_template_kwargs.get();
  conversation.chat_template = &request.chat_template;
  conversation.add_generation_prompt = request.add_generation_prompt;
  conversation.continue_final_message = request.continue_final_message;
  return render(conversation, gone);
}

Result<std::string> ChatFormat::render_whole(const Conversation& conversation,
                                             const std::atomic<bool>& gone) const {
  OrderedJson variables;
  ChatTemplateInput input;
  input.messages = conversation.messages;
  input.tools = conversation.tools;
  input.documents = conversation.documents;
  input.add_generation_prompt =
      conversation.add_generation_prompt && !conversation.continue_final_message;
  input.special_tokens = engine_.tokenizer()->special_tokens();
  if (conversation.kwargs == nullptr || conversation.kwargs->empty()) {
    input.extra = default_kwargs_.get();
  } else if (default_kwargs_->empty()) {
    input.extra = conversation.kwargs;
  } else {
    variables = *default_kwargs_;
    variables.update(*conversation.kwargs);
    input.extra = &variables;
  }
  if (conversation.chat_template->empty()) {
    const ChatTemplate& chosen = conversation.tools == nullptr ? template_ : tool_template_;
    return render_conversation(chosen, input, &gone);
  }
  ASSIGN_OR_RETURN(const ChatTemplate own,
                   ChatTemplate::parse(*conversation.chat_template, "chat_template"));
  return render_conversation(own, input, &gone);
}

Result<std::string> ChatFormat::render(const Conversation& conversation,
                                       const std::atomic<bool>& gone) const {
  ASSIGN_OR_RETURN(std::string text, render_whole(conversation, gone));
  if (conversation.continue_final_message) {
    ASSIGN_OR_RETURN(const std::string final, final_text(*conversation.messages));
    RETURN_IF_ERROR(cut_behind(final, &text));
  }
  return text;
}

}  // namespace atom::server
