#include <nlohmann/json.hpp>

#include "server/openai/field_rows.h"
#include "server/openai/message_kinds.h"
#include "server/openai/request_kinds.h"
#include "server/openai/request_tables.h"

namespace atom::server {

const FieldTable& chat_completion_table() {
  static const FieldTable table([] {
    using Target = ChatCompletionFields;
    std::vector<FieldSpec> fields;
#include "server/openai/chat_completion_fields.def"
#include "server/openai/generation_fields.def"
    return fields;
  }());
  return table;
}

void add_chat_completion_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  constexpr std::string_view kLogprobsRule = R"([
    {"anyOf": [{"properties": {"logprobs": {"const": true}}, "required": ["logprobs"]},
               {"properties": {"top_logprobs": {"enum": [0, null]}}}]}
  ])";
  describe_message_components(options, schemas);
  OrderedJson& schema = (*schemas)["ChatCompletionRequest"] = OrderedJson::object();
  chat_completion_table().describe(options, &schema);
  add_rules(kGenerationRules, &schema);
  add_rules(kLogprobsRule, &schema);
  add_rules(kContinueRule, &schema);
}

}  // namespace atom::server
