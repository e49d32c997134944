#include "tokenizer/chat_template/prepare_messages.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_text.h"
#include "tokenizer/chat_template/template_traits.h"

namespace atom {
namespace {

constexpr std::string_view kReasoningNames[] = {"reasoning_content", "reasoning", "thinking"};

bool is_hexadecimal(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Doubles each backslash that does not begin an escape of JSON.
std::string double_invalid_backslashes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '\\') continue;
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    bool is_escape = next != '\0' && std::string_view("\"\\/bfnrt").find(next) != std::string::npos;
    if (next == 'u') {
      is_escape = i + 5 < text.size();
      for (size_t k = i + 2; is_escape && k < i + 6; ++k) is_escape = is_hexadecimal(text[k]);
    }
    if (is_escape) {
      out += text[++i];
    } else {
      out += '\\';
    }
  }
  return out;
}

OrderedJson arguments_object(const OrderedJson& arguments) {
  if (arguments.is_object()) return arguments;
  if (arguments.is_null()) return OrderedJson::object();
  if (!arguments.is_string()) return OrderedJson{{"_raw", json_text(arguments)}};
  const std::string& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return OrderedJson::object();
  for (const std::string& candidate : {text, double_invalid_backslashes(text)}) {
    auto parsed = parse_ordered_json(candidate, "arguments");
    if (parsed.ok() && parsed->is_object()) return *std::move(parsed);
    if (parsed.ok() && parsed->is_null()) return OrderedJson::object();
  }
  return OrderedJson{{"_raw", text}};
}

OrderedJson arguments_text(const OrderedJson& arguments) {
  if (arguments.is_string()) return arguments;
  return arguments.is_null() ? OrderedJson("{}") : OrderedJson(json_text(arguments));
}

void prepare_tool_calls(const MessagePreparation& preparation, OrderedJson* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end()) return;
  if (calls->is_null() || calls->empty()) {
    message->erase("tool_calls");
    return;
  }
  if (!calls->is_array()) return;
  for (OrderedJson& call : *calls) {
    if (!call.is_object()) continue;
    OrderedJson& function =
        call.contains("function") && call["function"].is_object() ? call["function"] : call;
    if (!function.contains("arguments") && !function.contains("name")) continue;
    OrderedJson arguments = function.contains("arguments") ? function["arguments"] : OrderedJson();
    function["arguments"] =
        preparation.arguments_as_text ? arguments_text(arguments) : arguments_object(arguments);
  }
}

// The text of a list of parts; an error for a part that is not text.
Result<std::string> join_parts(const OrderedJson& parts, size_t index) {
  std::string text;
  for (const OrderedJson& part : parts) {
    if (!text.empty()) text += '\n';
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
    } else if (part.is_object() && part.contains("text") && part["text"].is_string()) {
      text += part["text"].get_ref<const std::string&>();
    } else {
      const bool has_type = part.is_object() && part.contains("type") && part["type"].is_string();
      return invalid_argument(
          "messages[{}].content: a part of type '{}' is not supported; this model takes "
          "{{\"type\": \"text\", \"text\": ...}}",
          index,
          has_type ? part["type"].get_ref<const std::string&>() : std::string(part.type_name()));
    }
  }
  return text;
}

Status prepare_content(const MessagePreparation& preparation, size_t index, OrderedJson* message) {
  const auto found = message->find("content");
  if (found == message->end() || found->is_null()) {
    if (!preparation.keep_null_content) (*message)["content"] = "";
    return {};
  }
  if (found->is_array()) {
    if (preparation.keep_content_parts) return {};
    ASSIGN_OR_RETURN(std::string text, join_parts(*found, index));
    (*message)["content"] = std::move(text);
  } else if (found->is_string()) {
    if (!preparation.wrap_text_content) return {};
    OrderedJson part{{"type", "text"}, {"text", *found}};
    (*message)["content"] = OrderedJson::array({std::move(part)});
  } else {
    return invalid_argument(
        "messages[{}].content must be a string, a list of parts or null, not {}",
        index,
        found->type_name());
  }
  return {};
}

void spread_reasoning(OrderedJson* message) {
  for (const std::string_view name : kReasoningNames) {
    const auto found = message->find(name);
    if (found == message->end() || !found->is_string()) continue;
    const OrderedJson reasoning = *found;
    for (const std::string_view other : kReasoningNames) {
      if (!message->contains(other) || (*message)[std::string(other)].is_null()) {
        (*message)[std::string(other)] = reasoning;
      }
    }
    return;
  }
}

bool has_tool_calls(const OrderedJson& messages) {
  for (const OrderedJson& message : messages) {
    if (message.is_object() && message.contains("tool_calls")) return true;
  }
  return false;
}

}  // namespace

MessagePreparation preparation_for(const ChatTemplate& chat_template) {
  const ChatTemplateTraits& traits = chat_template.traits();
  MessagePreparation preparation;
  preparation.keep_content_parts = traits.iterates_content;
  preparation.wrap_text_content = traits.iterates_content && !traits.tests_string_content;
  preparation.keep_null_content = traits.tests_null_content;
  preparation.rename_developer = !traits.mentions_developer;
  return preparation;
}

Result<OrderedJson> prepare_messages(const OrderedJson& messages,
                                     const MessagePreparation& preparation) {
  if (!messages.is_array()) {
    return invalid_argument("messages must be an array, not {}", messages.type_name());
  }
  OrderedJson prepared = messages;
  for (size_t i = 0; i < prepared.size(); ++i) {
    OrderedJson& message = prepared[i];
    if (!message.is_object()) {
      return invalid_argument("messages[{}] must be an object, not {}", i, message.type_name());
    }
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return invalid_argument("messages[{}].role must be a string", i);
    }
    if (preparation.rename_developer && *role == "developer") *role = "system";
    RETURN_IF_ERROR(prepare_content(preparation, i, &message));
    prepare_tool_calls(preparation, &message);
    spread_reasoning(&message);
  }
  return prepared;
}

Result<std::string> render_conversation(const ChatTemplate& chat_template,
                                        const ChatTemplateInput& input,
                                        const std::atomic<bool>* cancelled) {
  if (input.messages == nullptr) return invalid_argument("messages must be an array");
  MessagePreparation preparation = preparation_for(chat_template);
  ASSIGN_OR_RETURN(OrderedJson messages, prepare_messages(*input.messages, preparation));
  ChatTemplateInput prepared = input;
  prepared.messages = &messages;
  Result<std::string> text = chat_template.render(prepared, cancelled);
  if (text.ok() || text.status().code() != StatusCode::kInvalidArgument ||
      !has_tool_calls(messages)) {
    return text;
  }
  preparation.arguments_as_text = true;
  ASSIGN_OR_RETURN(messages, prepare_messages(*input.messages, preparation));
  Result<std::string> second = chat_template.render(prepared, cancelled);
  return second.ok() ? second : text;  // the first failure is the one to explain
}

}  // namespace atom
