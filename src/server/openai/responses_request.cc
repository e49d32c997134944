#include "server/openai/responses_request.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/openai/answer_rule_kinds.h"
#include "server/openai/field_rows.h"
#include "server/openai/parse_body.h"
#include "server/openai/request_tables.h"
#include "server/openai/response_items.h"

namespace atom::server {
namespace {

struct ReasoningFields {
  std::string effort;
};

struct ResponseTextFields {
  SharedJson format;
};

struct ResponsesFields {
  std::string model;
  SharedJson input;
  std::string instructions;
  SharedJson tools;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  ReasoningFields reasoning;
  ResponseTextFields text;
  SamplingParams sampling;
  std::optional<int32_t> max_output_tokens;
  bool stream = false;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string user;
  std::string safety_identifier;
  StreamOptions stream_options;
  std::optional<bool> store;
  std::string previous_response_id;
};

const FieldTable& reasoning_table() {
  static const FieldTable table([] {
    using Target = ReasoningFields;
    std::vector<FieldSpec> fields;
    FIELD("effort",
          (EnumKind{{"none", "minimal", "low", "medium", "high", "xhigh", "max"}}),
          effort,
          "Given to the chat template as reasoning_effort.")
    HINT("summary", "thoughts are returned whole.")
    HINT("generate_summary", "thoughts are returned whole.")
    return fields;
  }());
  return table;
}

const FieldTable& response_text_table() {
  static const FieldTable table([] {
    using Target = ResponseTextFields;
    std::vector<FieldSpec> fields;
    FIELD("format", ResponseTextFormatKind(), format, "The form of the answer.")
    HINT("verbosity", "the model has no such setting.")
    return fields;
  }());
  return table;
}

void add_storage_fields(bool keeps_responses, std::vector<FieldSpec>* all) {
  using Target = ResponsesFields;
  std::vector<FieldSpec>& fields = *all;
  if (keeps_responses) {
    FIELD("store", BoolKind(), store, "Keep the conversation for previous_response_id.")
    FIELD("previous_response_id",
          (StringKind{.min_length = 1, .max_length = 256}),
          previous_response_id,
          "An earlier answer's id: its conversation, less its instructions, stands in front.")
    return;
  }
  UNSUPPORTED("store", "[false]", "answers are not stored, see --max-stored-responses")
  UNSUPPORTED("previous_response_id",
              "[]",
              "answers are not stored, see --max-stored-responses: send the conversation")
}

const FieldTable& responses_table(bool keeps_responses) {
  const auto make_fields = [](bool keeps) {
    using Target = ResponsesFields;
    std::vector<FieldSpec> fields;
    FIELD("model",
          StringKind{.max_length = 1024},
          model,
          "The model to answer; when left out, the first one served.")
    REQUIRED_FIELD("input", ResponseInputKind(), input, "The conversation so far, or a text.")
    FIELD("instructions", StringKind(), instructions, "What stands in front of the conversation.")
    FIELD("tools", ResponseToolsKind(), tools, "What the model may call.")
    FIELD("tool_choice",
          ToolChoiceKind{.is_flat = true},
          tool_choice,
          "Which tools the answer calls.")
    FIELD("parallel_tool_calls",
          BoolKind(),
          parallel_tool_calls,
          "Return all calls of an answer; else the first.")
    FIELD("reasoning", TableKind<ReasoningFields>{&reasoning_table()}, reasoning, "")
    FIELD("text", TableKind<ResponseTextFields>{&response_text_table()}, text, "")
    FIELD("max_output_tokens",
          (IntKind<int32_t>{1}),
          max_output_tokens,
          "The most tokens to generate.")
    FIELD("stream", BoolKind(), stream, "Send the answer piece by piece, as server-sent events.")
    FIELD("stream_options", TableKind<StreamOptions>{&stream_options_table()}, stream_options, "")
    FIELD("temperature",
          (NumberKind{0, 100}),
          sampling.temperature,
          "How freely tokens are drawn; 0 takes the likeliest one.")
    FIELD("top_p",
          (NumberKind{0, 1, true}),
          sampling.top_p,
          "Draw from the likeliest tokens that together have this probability.")
    FIELD("metadata", MetadataKind(), metadata, "Notes of the client's, repeated in the answer.")
    FIELD("user", StringKind{.max_length = 512}, user, "The client's name for its user, for logs.")
    FIELD("safety_identifier",
          StringKind{.max_length = 512},
          safety_identifier,
          "The newer name of user.")
    HINT("prompt_cache_key", "prompts that begin alike share their cache.")
    HINT("prompt_cache_retention", "caches are kept in memory.")
    HINT("service_tier", "there is one tier.")
    HINT("max_tool_calls", "the server calls no tools itself.")
    HINT("include", "what there is is always included.")
    add_storage_fields(keeps, &fields);
    UNSUPPORTED("conversation", "[]", "conversations are not stored: send the conversation")
    UNSUPPORTED("background", "[false]", "answers are for who waits for them")
    UNSUPPORTED("prompt", "[]", "there are no stored prompts")
    UNSUPPORTED("truncation", "[\"disabled\"]", "conversations are not cut")
    UNSUPPORTED("top_logprobs", "[0]", "see /v1/chat/completions")
    return fields;
  };
  static const FieldTable plain(make_fields(false));
  static const FieldTable storing(make_fields(true));
  return keeps_responses ? storing : plain;
}

SharedJson with_instructions(const std::string& instructions, SharedJson messages) {
  if (instructions.empty()) return messages;
  OrderedJson all = OrderedJson::array();
  all.push_back({{"role", "system"}, {"content", instructions}});
  for (const OrderedJson& message : *messages) all.push_back(message);
  return std::make_shared<const OrderedJson>(std::move(all));
}

ChatCompletionRequest chat_request(ResponsesFields* fields) {
  ChatCompletionRequest chat;
  chat.model = std::move(fields->model);
  chat.messages = with_instructions(fields->instructions, fields->input);
  if (fields->tools != nullptr) chat.tools = chat_tools_of(*fields->tools);
  chat.tool_choice = fields->tool_choice;
  chat.parallel_tool_calls = fields->parallel_tool_calls;
  chat.sampling = fields->sampling;
  chat.rules.text_format = fields->text.format;
  chat.stream = fields->stream;
  chat.stream_options.include_usage = true;
  chat.max_tokens_field = "max_output_tokens";
  chat.has_max_tokens = fields->max_output_tokens.has_value();
  if (chat.has_max_tokens) chat.sampling.max_tokens = *fields->max_output_tokens;
  chat.user =
      std::move(fields->safety_identifier.empty() ? fields->user : fields->safety_identifier);
  if (!fields->reasoning.effort.empty()) {
    const OrderedJson arguments = {{"reasoning_effort", fields->reasoning.effort}};
    chat.chat_template_kwargs = std::make_shared<const OrderedJson>(arguments);
  }
  return chat;
}

}  // namespace

Parsed<ResponsesRequest> parse_responses_request(std::string_view text,
                                                 const SamplingParams& defaults,
                                                 const BodyContext& context) {
  OrderedJson body;
  ApiError error;
  ResponsesFields fields;
  fields.sampling = defaults;
  if (!parse_body(text, &body, &error)) return error;
  if (!responses_table(context.keeps_responses).read(body, {.context = &context}, &fields, &error))
    return error;
  ResponsesRequest request;
  request.instructions = fields.instructions;
  request.effort = fields.reasoning.effort;
  request.tools = fields.tools;
  OrderedJson metadata = OrderedJson::object();
  for (const auto& [key, value] : fields.metadata) metadata[key] = value;
  request.metadata = std::make_shared<const OrderedJson>(std::move(metadata));
  request.chat = chat_request(&fields);
  request.input = std::move(fields.input);
  request.previous_response_id = std::move(fields.previous_response_id);
  request.store = context.keeps_responses && fields.store.value_or(true);
  return request;
}

void continue_conversation(OrderedJson earlier, ResponsesRequest* request) {
  for (const OrderedJson& message : *request->input) earlier.push_back(message);
  request->input = std::make_shared<const OrderedJson>(std::move(earlier));
  request->chat.messages = with_instructions(request->instructions, request->input);
}

void add_responses_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  OrderedJson& schema = (*schemas)["ResponsesRequest"] = OrderedJson::object();
  responses_table(options.keeps_responses).describe(options, &schema);
}

}  // namespace atom::server
