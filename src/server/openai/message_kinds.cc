#include "server/openai/message_kinds.h"
#include "server/openai/list_kind.h"

#include <nlohmann/json.hpp>

namespace atom::server {
namespace {

constexpr size_t kMaxParts = 256;
constexpr size_t kMaxToolCalls = 128;
constexpr size_t kMaxNameLength = 256;
constexpr char kTextOnly[] = "this model takes text only";

const EnumKind& part_types(bool allows_refusal) {
  static const std::vector<std::pair<std::string, std::string>> refused = {
      {"image_url", kTextOnly},
      {"input_image", kTextOnly},
      {"input_audio", kTextOnly},
      {"audio_url", kTextOnly},
      {"video_url", kTextOnly},
      {"file", kTextOnly},
      {"input_text", "it belongs to the Responses API"}};
  static const EnumKind text{{"text"}, refused};
  static const EnumKind text_or_refusal{{"text", "refusal"}, refused};
  return allows_refusal ? text_or_refusal : text;
}

const FieldTable& text_part_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"text"}}, "")),
      required(check_field("text", StringKind(), "")),
      hint_field("cache_control", "prompts that begin alike share their cache."),
  });
  return table;
}

const FieldTable& refusal_part_table() {
  static const FieldTable table({
      required(check_field("type", EnumKind{{"refusal"}}, "")),
      required(check_field("refusal", StringKind(), "")),
  });
  return table;
}

// One part of a list of parts. A refusal becomes a text: it is what the assistant said.
struct PartKind {
  using Value = InPlace;
  bool allows_refusal = false;

  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    const EnumKind& types = part_types(allows_refusal);
    if (!value.is_object()) {
      return fail_type(error, path, value, R"({"type": "text", "text": ...})");
    }
    const auto type = value.find("type");
    const bool is_refusal = allows_refusal && type != value.end() && *type == "refusal";
    if (type != value.end() && !types.read(*type, path.field("type"), nullptr, error)) return false;
    if (!is_refusal) return text_part_table().read(value, path, nullptr, error);
    if (!refusal_part_table().read(value, path, nullptr, error)) return false;
    value = {{"type", "text"}, {"text", std::move(value["refusal"])}};
    return true;
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    OrderedJson text = OrderedJson::object();
    text_part_table().describe(options, &text);
    if (!allows_refusal) {
      *schema = std::move(text);
      return;
    }
    OrderedJson refusal = OrderedJson::object();
    refusal_part_table().describe(options, &refusal);
    (*schema)["anyOf"] = {std::move(text), std::move(refusal)};
  }
};

// Text or a list of parts.
struct ContentKind {
  using Value = InPlace;
  bool allows_refusal = false;

  ListKind<PartKind> parts() const { return {{allows_refusal}, "text parts", 1, kMaxParts}; }
  std::string expected() const { return fmt::format("a string or {}", parts().expected()); }
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

constexpr StringKind kFunctionName{.min_length = 1, .max_length = 64, .punctuation = "_.-"};
constexpr StringKind kName{.max_length = kMaxNameLength};

const FieldTable& called_function_table() {
  static const FieldTable table({
      required(check_field("name", kFunctionName, "")),
      required(check_field("arguments", StringKind(), "A JSON text.")),
  });
  return table;
}

const FieldTable& tool_call_table() {
  static const FieldTable table({
      required(check_field("id", kName, "")),
      check_field("type", EnumKind{{"function"}}, ""),
      required(check_field("function", TableKind<InPlace>{&called_function_table()}, "")),
      check_field("index", IntKind<int32_t>{0}, "As in streamed calls; not used."),
  });
  return table;
}

const FieldTable& system_table() {
  static const FieldTable table({
      required(check_field("role", EnumKind{{"system", "developer"}}, "")),
      required(check_field("content", ContentKind(), "")),
      check_field("name", kName, ""),
  });
  return table;
}

const FieldTable& user_table() {
  static const FieldTable table({
      required(check_field("role", EnumKind{{"user"}}, "")),
      required(check_field("content", ContentKind(), "")),
      check_field("name", kName, ""),
  });
  return table;
}

const FieldTable& assistant_table() {
  static const ListKind<TableKind<InPlace>> tool_calls{
      {&tool_call_table()}, "tool calls", 0, kMaxToolCalls};
  static const FieldTable table({
      required(check_field("role", EnumKind{{"assistant"}}, "")),
      check_field("content", ContentKind{.allows_refusal = true}, ""),
      check_field("tool_calls", tool_calls, ""),
      check_field("reasoning", StringKind(), "What the model thought before it answered."),
      check_field("reasoning_content", StringKind(), "Another name of reasoning."),
      check_field("refusal", StringKind(), ""),
      check_field("name", kName, ""),
      hint_field("annotations", "they say where a text is from."),
      unsupported_field("audio", "[]", kTextOnly),
      unsupported_field("function_call", "[]", "it was replaced by tool_calls"),
  });
  return table;
}

const FieldTable& tool_table() {
  static const FieldTable table({
      required(check_field("role", EnumKind{{"tool"}}, "")),
      required(check_field("content", ContentKind(), "")),
      required(check_field("tool_call_id", kName, "The id of the call that this answers.")),
      check_field("name", kName, ""),
  });
  return table;
}

// Any other role, for templates that know it.
struct OtherRoleKind {
  using Value = InPlace;
  static constexpr StringKind kText{.min_length = 1, .max_length = 64};

  std::string expected() const {
    return "'system', 'developer', 'user', 'assistant', 'tool' or another role of the template";
  }
  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    return kText.read(value, path, nullptr, error);
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    kText.describe(options, schema);
    (*schema)["not"]["enum"] = {"system", "developer", "user", "assistant", "tool"};
  }
};

const FieldTable& other_table() {
  static const FieldTable table({
      required(check_field("role", OtherRoleKind(), "")),
      check_field("content", ContentKind(), ""),
      check_field("name", kName, ""),
      check_field("tool_call_id", kName, ""),
  });
  return table;
}

const FieldTable& table_of_role(std::string_view role) {
  if (role == "user") return user_table();
  if (role == "assistant") return assistant_table();
  if (role == "system" || role == "developer") return system_table();
  return role == "tool" ? tool_table() : other_table();
}

// Templates ask whether a field is there. A null content may mean something to them.
void remove_unread_fields(OrderedJson* message) {
  for (auto field = message->begin(); field != message->end();) {
    const bool is_unread = field->is_null() && field.key() != "content";
    field = is_unread ? message->erase(field) : std::next(field);
  }
}

bool check_message(OrderedJson& message, const FieldPath& path, ApiError* error) {
  if (!message.is_object()) {
    return fail_type(error, path, message, R"({"role": ..., "content": ...})");
  }
  const auto role = message.find("role");
  if (role == message.end()) {
    return fail(
        error,
        path.field("role"),
        kMissingField,
        fmt::format("{}.role is missing; expected {}", path.text(), OtherRoleKind().expected()));
  }
  if (!OtherRoleKind().read(*role, path.field("role"), nullptr, error)) return false;
  const FieldTable& table = table_of_role(role->get_ref<const std::string&>());
  if (!table.read(message, path, nullptr, error)) return false;
  remove_unread_fields(&message);
  return true;
}

// The object that JSON Schema describes what a function takes with.
struct SchemaObjectKind {
  using Value = InPlace;
  std::string expected() const { return "an object (a JSON Schema)"; }
  bool read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
    return value.is_object() || fail_type(error, path, value, expected());
  }
  void describe(const OpenApiOptions&, OrderedJson* schema) const { (*schema)["type"] = "object"; }
};

const FieldTable& function_table() {
  static const FieldTable table({
      required(check_field("name", kFunctionName, "")),
      check_field("description", StringKind(), ""),
      check_field("parameters", SchemaObjectKind(), "The JSON Schema of the arguments."),
      check_field("strict", BoolKind(), "Calls of this tool follow its schema."),
  });
  return table;
}

const FieldTable& tool_definition_table() {
  static const EnumKind types{{"function"}, {{"custom", "only functions are supported"}}};
  static const FieldTable table({
      required(check_field("type", types, "")),
      required(check_field("function", TableKind<InPlace>{&function_table()}, "")),
      hint_field("cache_control", "prompts that begin alike share their cache."),
  });
  return table;
}

void describe_list_of(const char* component,
                      size_t min_items,
                      size_t max_items,
                      OrderedJson* schema) {
  const auto describe_item = [&](OrderedJson* item) {
    (*item)["$ref"] = fmt::format("#/components/schemas/{}", component);
  };
  describe_list(min_items, max_items, describe_item, schema);
}

}  // namespace

std::string MessagesKind::expected() const {
  return fmt::format("a list of 1 to {} messages", kMaxMessages);
}

bool MessagesKind::read(OrderedJson& value,
                        const FieldPath& path,
                        SharedJson* out,
                        ApiError* error) const {
  if (!is_list(value, 1, kMaxMessages)) return fail_list(error, path, value, expected());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!check_message(value[i], path.item(i), error)) return false;
  }
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(value));
  return true;
}

void MessagesKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  describe_list_of("ChatMessage", 1, kMaxMessages, schema);
}

std::string ToolsKind::expected() const {
  return fmt::format("a list of 0 to {} tools", kMaxTools);
}

bool ToolsKind::read(OrderedJson& value,
                     const FieldPath& path,
                     SharedJson* out,
                     ApiError* error) const {
  if (!is_list(value, 0, kMaxTools)) return fail_list(error, path, value, expected());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!tool_definition_table().read(value[i], path.item(i), nullptr, error)) return false;
  }
  if (out != nullptr && !value.empty()) {
    *out = std::make_shared<const OrderedJson>(std::move(value));
  }
  return true;
}

void ToolsKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  describe_list_of("Tool", 0, kMaxTools, schema);
}

void describe_message_components(const OpenApiOptions& options, OrderedJson* schemas) {
  const std::pair<const char*, const FieldTable*> messages[] = {
      {"SystemMessage", &system_table()},
      {"UserMessage", &user_table()},
      {"AssistantMessage", &assistant_table()},
      {"ToolMessage", &tool_table()},
      {"OtherMessage", &other_table()},
  };
  OrderedJson alternatives = OrderedJson::array();
  for (const auto& [name, table] : messages) {
    OrderedJson& schema = (*schemas)[name] = OrderedJson::object();
    table->describe(options, &schema);
    OrderedJson reference;
    reference["$ref"] = fmt::format("#/components/schemas/{}", name);
    alternatives.push_back(std::move(reference));
  }
  (*schemas)["ChatMessage"]["anyOf"] = std::move(alternatives);
  OrderedJson& tool = (*schemas)["Tool"] = OrderedJson::object();
  tool_definition_table().describe(options, &tool);
}

}  // namespace atom::server
