#include "server/openai/response_items.h"
#include "server/openai/list_kind.h"

#include <nlohmann/json.hpp>

namespace atom::server {
namespace {

constexpr size_t kMaxItems = 4096;
constexpr size_t kMaxTextParts = 256;
constexpr size_t kMaxTools = 256;
constexpr char kInputTextOnly[] = "this model takes text only";
constexpr char kOwn[] = "the server names items itself.";
constexpr StringKind kId{.min_length = 1, .max_length = 256};
constexpr StringKind kToolFunctionName{.min_length = 1, .max_length = 64, .punctuation = "_.-"};

const FieldTable& item_text_table() {
  static const EnumKind types{
      {"input_text", "output_text", "text", "reasoning_text", "summary_text"},
      {{"input_image", kInputTextOnly},
       {"input_file", kInputTextOnly},
       {"input_audio", kInputTextOnly}}};
  static const FieldTable table({
      required(check_field("type", types, "")),
      required(check_field("text", StringKind(), "")),
      hint_field("annotations", "they say where a text is from."),
      hint_field("logprobs", "they are of an earlier answer."),
      hint_field("prompt_cache_breakpoint", "prompts that begin alike share their cache."),
  });
  return table;
}

// A text or a list of parts of text.
struct PartsKind {
  using Value = InPlace;
  std::string expected() const { return "a string or a list of text parts"; }
  ListKind<TableKind<InPlace>> parts() const {
    return {{&item_text_table()}, "text parts", 0, kMaxTextParts};
  }
  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    if (value.is_string()) return true;
    if (!value.is_array()) return fail_type(error, path, value, expected());
    return parts().read(value, path, nullptr, error);
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    OrderedJson list = OrderedJson::object();
    parts().describe(options, &list);
    (*schema)["anyOf"] = {{{"type", "string"}}, std::move(list)};
  }
};

const FieldTable& message_item_table() {
  static const FieldTable table({
      check_field("type", EnumKind{{"message"}}, ""),
      required(check_field("role", EnumKind{{"user", "assistant", "system", "developer"}}, "")),
      required(check_field("content", PartsKind(), "")),
      hint_field("id", kOwn),
      hint_field("status", kOwn),
      hint_field("phase", "answers have one phase."),
  });
  return table;
}

const FieldTable& call_item_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"function_call"}}, "")),
      required(check_field("call_id", kId, "")),
      required(check_field("name", kToolFunctionName, "")),
      required(check_field("arguments", StringKind(), "A JSON text.")),
      hint_field("id", kOwn),
      hint_field("status", kOwn),
  });
  return table;
}

const FieldTable& output_item_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"function_call_output"}}, "")),
      required(check_field("call_id", kId, "The call that this answers.")),
      required(check_field("output", PartsKind(), "")),
      hint_field("id", kOwn),
      hint_field("status", kOwn),
  });
  return table;
}

const FieldTable& reasoning_item_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"reasoning"}}, "")),
      check_field("summary", PartsKind(), ""),
      check_field("content", PartsKind(), ""),
      hint_field("encrypted_content", "thoughts are not encrypted."),
      hint_field("id", kOwn),
      hint_field("status", kOwn),
  });
  return table;
}

const FieldTable* table_of(const OrderedJson& item) {
  const auto type = item.find("type");
  if (type == item.end() || *type == "message") return &message_item_table();
  if (*type == "function_call") return &call_item_table();
  if (*type == "function_call_output") return &output_item_table();
  return *type == "reasoning" ? &reasoning_item_table() : nullptr;
}

std::string joined_text(const OrderedJson& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const OrderedJson& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

// The assistant's message that what the model said last belongs to.
OrderedJson& assistant_message(OrderedJson* messages) {
  if (messages->empty() || messages->back()["role"] != "assistant") {
    messages->push_back({{"role", "assistant"}, {"content", nullptr}});
  }
  return messages->back();
}

void append_item(const OrderedJson& item, OrderedJson* messages) {
  const std::string type = item.value("type", "message");
  if (type == "function_call_output") {
    messages->push_back({{"role", "tool"},
                         {"tool_call_id", item["call_id"]},
                         {"content", joined_text(item["output"])}});
  } else if (type == "function_call") {
    assistant_message(messages)["tool_calls"].push_back(
        {{"id", item["call_id"]},
         {"type", "function"},
         {"function", {{"name", item["name"]}, {"arguments", item["arguments"]}}}});
  } else if (type == "reasoning") {
    const std::string text = joined_text(item.value("content", OrderedJson::array()));
    if (!text.empty()) assistant_message(messages)["reasoning_content"] = text;
  } else if (item["role"] == "assistant" && !messages->empty() &&
             messages->back()["role"] == "assistant" && messages->back()["content"].is_null()) {
    messages->back()["content"] = joined_text(item["content"]);
  } else {
    messages->push_back({{"role", item["role"]}, {"content", joined_text(item["content"])}});
  }
}

const FieldTable& response_tool_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"function"}}, "")),
      required(check_field("name", kToolFunctionName, "")),
      check_field("description", StringKind(), ""),
      check_field("parameters", ObjectKind(), "The JSON Schema of the arguments."),
      check_field("strict", BoolKind(), "Calls of this tool follow its schema."),
      hint_field("defer_loading", "all tools are shown to the model."),
  });
  return table;
}

}  // namespace

void append_items(const OrderedJson& items, OrderedJson* messages) {
  for (const OrderedJson& item : items) append_item(item, messages);
}

std::string ResponseInputKind::expected() const {
  return fmt::format("a string or a list of 1 to {} items", kMaxItems);
}

bool ResponseInputKind::read(OrderedJson& value,
                             const FieldPath& path,
                             SharedJson* out,
                             ApiError* error) const {
  OrderedJson messages = OrderedJson::array();
  if (value.is_string()) {
    messages.push_back({{"role", "user"}, {"content", value}});
  } else if (!is_list(value, 1, kMaxItems)) {
    return fail_list(error, path, value, expected());
  } else {
    for (size_t i = 0; i < value.size(); ++i) {
      const FieldPath item_path = path.item(i);
      if (!value[i].is_object()) return fail_type(error, item_path, value[i], "an item");
      const FieldTable* table = table_of(value[i]);
      if (table == nullptr) {
        return fail(error,
                    item_path.field("type"),
                    kUnsupportedField,
                    fmt::format("{}.type is {}; expected 'message', 'function_call', "
                                "'function_call_output' or 'reasoning'",
                                item_path.text(),
                                show(value[i]["type"])));
      }
      if (!table->read(value[i], item_path, nullptr, error)) return false;
      append_item(value[i], &messages);
    }
  }
  if (messages.empty()) {
    return fail(error, path, kInvalidValue, path.text() + " says nothing; expected a message");
  }
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(messages));
  return true;
}

void ResponseInputKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  OrderedJson list = OrderedJson::object();
  const auto describe_item = [&](OrderedJson* item) {
    for (const FieldTable* table : {&message_item_table(),
                                    &call_item_table(),
                                    &output_item_table(),
                                    &reasoning_item_table()}) {
      OrderedJson one = OrderedJson::object();
      table->describe(options, &one);
      (*item)["anyOf"].push_back(std::move(one));
    }
  };
  describe_list(1, kMaxItems, describe_item, &list);
  (*schema)["anyOf"] = {{{"type", "string"}}, std::move(list)};
}

bool ResponseToolsKind::read(OrderedJson& value,
                             const FieldPath& path,
                             SharedJson* out,
                             ApiError* error) const {
  if (!is_list(value, 0, kMaxTools)) return fail_list(error, path, value, expected());
  for (size_t i = 0; i < value.size(); ++i) {
    const FieldPath tool_path = path.item(i);
    const OrderedJson type =
        value[i].is_object() ? value[i].value("type", OrderedJson()) : OrderedJson();
    if (type.is_string() && type != "function") {
      return fail(
          error,
          tool_path.field("type"),
          kUnsupportedField,
          fmt::format("{}.type is {}; expected 'function': the server has no tools of its own",
                      tool_path.text(),
                      show(type)));
    }
    if (!response_tool_table().read(value[i], tool_path, nullptr, error)) return false;
  }
  if (out != nullptr && !value.empty()) {
    *out = std::make_shared<const OrderedJson>(std::move(value));
  }
  return true;
}

void ResponseToolsKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  const auto describe_item = [&](OrderedJson* item) {
    response_tool_table().describe(options, item);
  };
  describe_list(0, kMaxTools, describe_item, schema);
}

SharedJson chat_tools_of(const OrderedJson& tools) {
  OrderedJson chat_tools = OrderedJson::array();
  for (const OrderedJson& tool : tools) {
    OrderedJson function = {{"name", tool["name"]}};
    for (const char* name : {"description", "parameters"}) {
      if (tool.contains(name) && !tool[name].is_null()) function[name] = tool[name];
    }
    if (tool.contains("strict") && tool["strict"] == true) function["strict"] = true;
    chat_tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return std::make_shared<const OrderedJson>(std::move(chat_tools));
}

}  // namespace atom::server
