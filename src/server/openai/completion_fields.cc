#include <nlohmann/json.hpp>

#include "server/openai/field_rows.h"
#include "server/openai/request_kinds.h"
#include "server/openai/request_tables.h"

namespace atom::server {

const FieldTable& stream_options_table() {
  static const FieldTable table({
      bound_field<StreamOptions>(
          "include_usage",
          BoolKind(),
          [](auto& options) -> auto& { return options.include_usage; },
          "Send the usage in a last event."),
      bound_field<StreamOptions>(
          "continuous_usage_stats",
          BoolKind(),
          [](auto& options) -> auto& { return options.continuous_usage_stats; },
          "Send the usage so far in every event, with include_usage."),
      hint_field("include_obfuscation", "events are not padded."),
  });
  return table;
}

const FieldTable& completion_table() {
  static const FieldTable table([] {
    using Target = CompletionFields;
    std::vector<FieldSpec> fields;
#include "server/openai/completion_fields.def"
#include "server/openai/generation_fields.def"
    return fields;
  }());
  return table;
}

void add_completion_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  OrderedJson& schema = (*schemas)["CompletionRequest"] = OrderedJson::object();
  completion_table().describe(options, &schema);
  schema["properties"]["max_tokens"]["default"] = kDefaultCompletionTokens;
  add_rules(kGenerationRules, &schema);
}

}  // namespace atom::server
