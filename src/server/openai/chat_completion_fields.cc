#include "server/openai/message_kinds.h"
#include "server/openai/request_kinds.h"
#include "server/openai/request_tables.h"

namespace atom::server {

const FieldTable& chat_completion_table() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
#define FIELD(name, kind, member, description)        \
  fields.push_back(bound_field<ChatCompletionFields>( \
      name, kind, [](auto& target) -> auto& { return (target.member); }, description));
#define REQUIRED_FIELD(name, kind, member, description) \
  FIELD(name, kind, member, description)                \
  fields.back().is_required = true;
#define UNSUPPORTED(name, neutral, reason) \
  fields.push_back(unsupported_field(name, neutral, reason));
#include "server/openai/chat_completion_fields.def"
#include "server/openai/generation_fields.def"
#undef FIELD
#undef REQUIRED_FIELD
#undef UNSUPPORTED
    return fields;
  }());
  return table;
}

}  // namespace atom::server
