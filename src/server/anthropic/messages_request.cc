#include "server/anthropic/messages_request.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/anthropic/message_blocks.h"
#include "server/openai/answer_rule_kinds.h"
#include "server/openai/field_rows.h"
#include "server/openai/parse_body.h"

namespace atom::server {
namespace {

struct ToolChoiceFields {
  std::string type;
  std::string name;
  bool disable_parallel_tool_use = false;
};

struct ThinkingFields {
  std::string type;
  std::optional<int32_t> budget_tokens;
};

struct MetadataFields {
  std::string user_id;
};

struct OutputFields {
  std::string effort;
  SharedJson format;
};

struct MessagesFields {
  std::string model;
  SharedJson messages;
  std::string system;
  SharedJson tools;
  ToolChoiceFields choice;
  ThinkingFields thinking;
  MetadataFields metadata;
  OutputFields output;
  SharedJson output_format;
  SamplingParams sampling;
  int32_t max_tokens = 0;
  bool stream = false;
};

const FieldTable& tool_choice_fields_table() {
  static const FieldTable table([] {
    using Target = ToolChoiceFields;
    static const EnumKind types{{"auto", "none", "any", "tool"}};
    std::vector<FieldSpec> fields;
    REQUIRED_FIELD("type", types, type, "")
    FIELD("disable_parallel_tool_use",
          BoolKind(),
          disable_parallel_tool_use,
          "Return the first call only.")
    FIELD("name", StringKind{.max_length = 256}, name, "The tool to call, with type 'tool'.")
    return fields;
  }());
  return table;
}

const FieldTable& thinking_fields_table() {
  static const FieldTable table([] {
    using Target = ThinkingFields;
    std::vector<FieldSpec> fields;
    REQUIRED_FIELD("type", (EnumKind{{"enabled", "disabled", "adaptive"}}), type, "")
    FIELD("budget_tokens",
          (IntKind<int32_t>{0}),
          budget_tokens,
          "Tokens of thoughts, after which they are ended, where the model's thoughts are known.")
    HINT("display", "thoughts are always returned.")
    return fields;
  }());
  return table;
}

const FieldTable& metadata_fields_table() {
  static const FieldTable table([] {
    using Target = MetadataFields;
    std::vector<FieldSpec> fields;
    FIELD("user_id", StringKind{.max_length = 512}, user_id, "The client's name for its user.")
    return fields;
  }());
  return table;
}

const FieldTable& output_fields_table() {
  static const FieldTable table([] {
    using Target = OutputFields;
    std::vector<FieldSpec> fields;
    FIELD("effort",
          (EnumKind{{"low", "medium", "high", "xhigh", "max"}}),
          effort,
          "Given to the chat template as reasoning_effort.")
    FIELD("format", OutputFormatKind(), format, "The form of the answer.")
    return fields;
  }());
  return table;
}

const FieldTable& messages_table() {
  static const FieldTable table([] {
    using Target = MessagesFields;
    std::vector<FieldSpec> fields;
#include "server/anthropic/messages_fields.def"
    REQUIRED_FIELD("max_tokens", (IntKind<int32_t>{1}), max_tokens, "The most tokens to generate.")
    FIELD("stream", BoolKind(), stream, "Send the answer piece by piece, as server-sent events.")
    FIELD("temperature",
          (NumberKind{0, 100}),
          sampling.temperature,
          "How freely tokens are drawn; 0 takes the likeliest one.")
    FIELD("top_p",
          (NumberKind{0, 1, true}),
          sampling.top_p,
          "Draw from the likeliest tokens that together have this probability.")
    FIELD("top_k",
          (IntKind<int32_t>{0}),
          sampling.top_k,
          "Draw from this many of the likeliest tokens; 0 is off.")
    FIELD("stop_sequences",
          (TextListKind{SamplingParams::kMaxStopStrings, 1024}),
          sampling.stop,
          "The answer ends before the first of these.")
    FIELD("metadata", TableKind<MetadataFields>{&metadata_fields_table()}, metadata, "")
    FIELD("output_config", TableKind<OutputFields>{&output_fields_table()}, output, "")
    return fields;
  }());
  return table;
}

const FieldTable& count_tokens_table() {
  static const FieldTable table([] {
    using Target = MessagesFields;
    std::vector<FieldSpec> fields;
#include "server/anthropic/messages_fields.def"
    HINT("output_config", "only the prompt is counted.")
    HINT("max_tokens", "only the prompt is counted.")
    return fields;
  }());
  return table;
}

SharedJson with_system(const std::string& system, SharedJson messages) {
  if (system.empty()) return messages;
  OrderedJson all = OrderedJson::array();
  all.push_back({{"role", "system"}, {"content", system}});
  for (const OrderedJson& message : *messages) all.push_back(message);
  return std::make_shared<const OrderedJson>(std::move(all));
}

// Uses the names that templates of models that think know.
SharedJson template_arguments(const MessagesFields& fields) {
  OrderedJson arguments = OrderedJson::object();
  if (!fields.thinking.type.empty()) {
    const bool thinks = fields.thinking.type != "disabled";
    arguments["enable_thinking"] = thinks;
    arguments["thinking"] = thinks;
  }
  if (!fields.output.effort.empty()) arguments["reasoning_effort"] = fields.output.effort;
  return arguments.empty() ? nullptr : std::make_shared<const OrderedJson>(std::move(arguments));
}

ToolChoice tool_choice(const ToolChoiceFields& fields) {
  if (fields.type == "none") return ToolChoice::kNone;
  if (fields.type == "any") return ToolChoice::kRequired;
  if (fields.type == "tool") return {ToolChoice::kNamed, fields.name};
  return ToolChoice::kAuto;
}

Parsed<ChatCompletionRequest> parse(const FieldTable& table,
                                    std::string_view text,
                                    const SamplingParams& defaults,
                                    const BodyContext& context) {
  OrderedJson body;
  ApiError error;
  MessagesFields fields;
  fields.sampling = defaults;
  if (!parse_body(text, &body, &error)) return error;
  if (!table.read(body, {.context = &context}, &fields, &error)) return error;
  ChatCompletionRequest request;
  request.chat_template_kwargs = template_arguments(fields);
  request.model = std::move(fields.model);
  request.messages = with_system(fields.system, std::move(fields.messages));
  request.tools = std::move(fields.tools);
  request.tool_choice = tool_choice(fields.choice);
  request.rules.output_format =
      fields.output_format != nullptr ? fields.output_format : fields.output.format;
  request.parallel_tool_calls = !fields.choice.disable_parallel_tool_use;
  request.sampling = std::move(fields.sampling);
  request.user = std::move(fields.metadata.user_id);
  request.stream = fields.stream;
  request.stream_options.include_usage = true;
  if (fields.thinking.type == "enabled")
    request.max_thinking_tokens = fields.thinking.budget_tokens;
  request.has_max_tokens = fields.max_tokens > 0;
  if (request.has_max_tokens) request.sampling.max_tokens = fields.max_tokens;
  return request;
}

}  // namespace

Parsed<ChatCompletionRequest> parse_messages_request(std::string_view body,
                                                     const SamplingParams& defaults,
                                                     const BodyContext& context) {
  return parse(messages_table(), body, defaults, context);
}

Parsed<ChatCompletionRequest> parse_count_tokens_request(std::string_view body,
                                                         const BodyContext& context) {
  return parse(count_tokens_table(), body, {}, context);
}

void add_messages_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  OrderedJson& schema = (*schemas)["MessagesRequest"] = OrderedJson::object();
  messages_table().describe(options, &schema);
}

void add_count_tokens_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  OrderedJson& schema = (*schemas)["CountTokensRequest"] = OrderedJson::object();
  count_tokens_table().describe(options, &schema);
}

}  // namespace atom::server
