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

}  // namespace atom::server
