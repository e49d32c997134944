#include "server/anthropic/message_blocks.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "server/openai/list_kind.h"

namespace atom::server {
namespace {

constexpr size_t kMaxMessages = 2048;
constexpr size_t kMaxBlocks = 1024;
constexpr size_t kMaxTools = 256;
constexpr char kTextOnly[] = "this model takes text only";
constexpr char kSharedCache[] = "prompts that begin alike share their cache.";
constexpr StringKind kId{.min_length = 1, .max_length = 256};
constexpr StringKind kToolName{.min_length = 1, .max_length = 128, .punctuation = "_.-"};

FieldSpec type_field(const char* type) {
  return required(check_field("type", EnumKind{{type}}, ""));
}

const FieldTable& text_block_table() {
  static const FieldTable table({
      type_field("text"),
      required(check_field("text", StringKind(), "")),
      hint_field("cache_control", kSharedCache),
      hint_field("citations", "answers cite nothing."),
  });
  return table;
}

// A string or a list of blocks.
template <typename Block>
struct StringOrBlocksKind {
  using Value = InPlace;
  Block block;
  const char* name;  // of the blocks

  std::string expected() const { return fmt::format("a string or a list of {}", name); }
  ListKind<Block> blocks() const { return {block, name, 0, kMaxBlocks}; }
  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    if (value.is_string()) return true;
    if (!value.is_array()) return fail_type(error, path, value, expected());
    return blocks().read(value, path, nullptr, error);
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    OrderedJson list = OrderedJson::object();
    blocks().describe(options, &list);
    (*schema)["anyOf"] = {{{"type", "string"}}, std::move(list)};
  }
};

StringOrBlocksKind<TableKind<InPlace>> text_blocks() {
  return {{&text_block_table()}, "text blocks"};
}

const FieldTable& tool_result_table() {
  static const FieldTable table({
      type_field("tool_result"),
      required(check_field("tool_use_id", kId, "The call that this answers.")),
      check_field("content", text_blocks(), ""),
      check_field("is_error", BoolKind(), ""),
      hint_field("cache_control", kSharedCache),
  });
  return table;
}

const FieldTable& tool_use_table() {
  static const FieldTable table({
      type_field("tool_use"),
      required(check_field("id", kId, "")),
      required(check_field("name", kToolName, "")),
      required(check_field("input", ObjectKind(), "")),
      hint_field("caller", "calls are the model's own."),
      hint_field("cache_control", kSharedCache),
  });
  return table;
}

const FieldTable& thinking_table() {
  static const FieldTable table({
      type_field("thinking"),
      required(check_field("thinking", StringKind(), "")),
      hint_field("signature", "thoughts are not signed."),
  });
  return table;
}

const FieldTable& redacted_thinking_table() {
  static const FieldTable table({
      type_field("redacted_thinking"),
      hint_field("data", "it is another model's."),
  });
  return table;
}

// The blocks that a role may have.
std::vector<std::pair<std::string_view, const FieldTable*>> tables_of_role(bool is_assistant) {
  if (!is_assistant) return {{"text", &text_block_table()}, {"tool_result", &tool_result_table()}};
  return {{"text", &text_block_table()},
          {"tool_use", &tool_use_table()},
          {"thinking", &thinking_table()},
          {"redacted_thinking", &redacted_thinking_table()}};
}

struct BlockKind {
  using Value = InPlace;
  bool is_assistant = false;

  std::string expected() const {
    return is_assistant ? "a text, tool_use or thinking block" : "a text or tool_result block";
  }
  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    if (!value.is_object()) return fail_type(error, path, value, expected());
    const auto type = value.find("type");
    if (type == value.end()) {
      return fail(error,
                  path.field("type"),
                  kMissingField,
                  fmt::format("{}.type is missing; expected {}", path.text(), expected()));
    }
    for (const auto& [name, table] : tables_of_role(is_assistant)) {
      if (*type == name) return table->read(value, path, nullptr, error);
    }
    if (*type == "image" || *type == "document" || *type == "search_result") {
      return fail(
          error,
          path.field("type"),
          kUnsupportedField,
          fmt::format(
              "{}.type is {}; expected {}: {}", path.text(), show(*type), expected(), kTextOnly));
    }
    return fail_value(error, path.field("type"), *type, expected());
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    for (const auto& [name, table] : tables_of_role(is_assistant)) {
      OrderedJson one = OrderedJson::object();
      table->describe(options, &one);
      (*schema)["anyOf"].push_back(std::move(one));
    }
  }
};

StringOrBlocksKind<BlockKind> blocks_of_role(bool is_assistant) {
  return {{is_assistant}, "blocks"};
}

const FieldTable& user_message_table() {
  static const FieldTable table({
      required(check_field("role", EnumKind{{"user"}}, "")),
      required(check_field("content", blocks_of_role(false), "")),
  });
  return table;
}

const FieldTable& assistant_message_table() {
  static const FieldTable table({
      required(check_field("role", EnumKind{{"assistant"}}, "")),
      required(check_field("content", blocks_of_role(true), "")),
  });
  return table;
}

// The texts of a string or a list of text blocks, a line each.
std::string joined_text(const OrderedJson& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const OrderedJson& block : content) {
    if (!text.empty()) text += '\n';
    text += block["text"].get_ref<const std::string&>();
  }
  return text;
}

// Texts between results of tools are a user's message each.
void append_user(const OrderedJson& content, OrderedJson* messages) {
  if (content.is_string()) {
    messages->push_back({{"role", "user"}, {"content", content}});
    return;
  }
  OrderedJson texts = OrderedJson::array();
  const auto flush = [&] {
    if (texts.empty()) return;
    messages->push_back({{"role", "user"}, {"content", joined_text(texts)}});
    texts.clear();
  };
  for (const OrderedJson& block : content) {
    if (block["type"] == "text") {
      texts.push_back(block);
      continue;
    }
    flush();
    messages->push_back({{"role", "tool"},
                         {"tool_call_id", block["tool_use_id"]},
                         {"content", joined_text(block.value("content", OrderedJson::array()))}});
  }
  flush();
}

OrderedJson tool_call_of(const OrderedJson& block) {
  return {{"id", block["id"]},
          {"type", "function"},
          {"function", {{"name", block["name"]}, {"arguments", json_text(block["input"])}}}};
}

void append_assistant(const OrderedJson& content, OrderedJson* messages) {
  OrderedJson message = {{"role", "assistant"}};
  if (content.is_string()) {
    message["content"] = content;
    messages->push_back(std::move(message));
    return;
  }
  std::string text;
  std::string reasoning;
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& block : content) {
    const OrderedJson& type = block["type"];
    if (type == "text") {
      text += block["text"].get_ref<const std::string&>();
    } else if (type == "thinking") {
      reasoning += block["thinking"].get_ref<const std::string&>();
    } else if (type == "tool_use") {
      calls.push_back(tool_call_of(block));
    }
  }
  message["content"] = text.empty() && !calls.empty() ? OrderedJson() : OrderedJson(text);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages->push_back(std::move(message));
}

const FieldTable& client_tool_table() {
  static const EnumKind types{{"custom"}};
  static const FieldTable table({
      check_field("type", types, ""),
      required(check_field("name", kToolName, "")),
      check_field("description", StringKind(), ""),
      required(check_field("input_schema", ObjectKind(), "The JSON Schema of the arguments.")),
      check_field("strict", BoolKind(), "Calls of this tool follow its schema."),
      hint_field("cache_control", kSharedCache),
      hint_field("eager_input_streaming", "arguments are streamed as they come."),
      hint_field("input_examples", "they are not shown to the model."),
      hint_field("defer_loading", "all tools are shown to the model."),
      hint_field("allowed_callers", "calls are the model's own."),
  });
  return table;
}

}  // namespace

bool SystemPromptKind::read(OrderedJson& value,
                            const FieldPath& path,
                            std::string* out,
                            ApiError* error) const {
  if (!text_blocks().read(value, path, nullptr, error)) return false;
  if (out != nullptr) *out = joined_text(value);
  return true;
}

void SystemPromptKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  text_blocks().describe(options, schema);
}

std::string BlockMessagesKind::expected() const {
  return fmt::format("a list of 1 to {} messages", kMaxMessages);
}

bool BlockMessagesKind::read(OrderedJson& value,
                             const FieldPath& path,
                             SharedJson* out,
                             ApiError* error) const {
  if (!is_list(value, 1, kMaxMessages)) return fail_list(error, path, value, expected());
  OrderedJson messages = OrderedJson::array();
  for (size_t i = 0; i < value.size(); ++i) {
    OrderedJson& message = value[i];
    const bool is_assistant =
        message.is_object() && message.value("role", OrderedJson()) == "assistant";
    const FieldTable& table = is_assistant ? assistant_message_table() : user_message_table();
    if (!table.read(message, path.item(i), nullptr, error)) return false;
    if (is_assistant) {
      append_assistant(message["content"], &messages);
    } else {
      append_user(message["content"], &messages);
    }
  }
  if (messages.empty()) {
    return fail(error, path, kInvalidValue, path.text() + " have no blocks; expected some");
  }
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(messages));
  return true;
}

void BlockMessagesKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  const auto describe_item = [&](OrderedJson* item) {
    for (const FieldTable* table : {&user_message_table(), &assistant_message_table()}) {
      OrderedJson one = OrderedJson::object();
      table->describe(options, &one);
      (*item)["anyOf"].push_back(std::move(one));
    }
  };
  describe_list(1, kMaxMessages, describe_item, schema);
}

bool ClientToolsKind::read(OrderedJson& value,
                           const FieldPath& path,
                           SharedJson* out,
                           ApiError* error) const {
  if (!is_list(value, 0, kMaxTools)) return fail_list(error, path, value, expected());
  OrderedJson tools = OrderedJson::array();
  for (size_t i = 0; i < value.size(); ++i) {
    OrderedJson& tool = value[i];
    const FieldPath tool_path = path.item(i);
    const OrderedJson type = tool.is_object() ? tool.value("type", OrderedJson()) : OrderedJson();
    if (type.is_string() && type != "custom") {
      return fail(
          error,
          tool_path.field("type"),
          kUnsupportedField,
          fmt::format("{}.type is {}; expected 'custom': the server has no tools of its own",
                      tool_path.text(),
                      show(type)));
    }
    if (!client_tool_table().read(tool, tool_path, nullptr, error)) return false;
    OrderedJson function = {{"name", std::move(tool["name"])}};
    if (tool.contains("description")) function["description"] = std::move(tool["description"]);
    function["parameters"] = std::move(tool["input_schema"]);
    if (tool.contains("strict") && tool["strict"] == true) function["strict"] = true;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  if (out != nullptr && !tools.empty()) {
    *out = std::make_shared<const OrderedJson>(std::move(tools));
  }
  return true;
}

void ClientToolsKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  const auto describe_item = [&](OrderedJson* item) {
    client_tool_table().describe(options, item);
  };
  describe_list(0, kMaxTools, describe_item, schema);
}

}  // namespace atom::server
