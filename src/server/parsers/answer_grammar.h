// What a whole answer has to be, as a format of structural tags, where its content has a form, its
// tool calls have schemas, or it has to call a tool: the way each family writes calls and
// reasoning, with a place in it for what the request asks. What the parsers of the families read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom::server {

// A tool that the answer may call.
struct CallableTool {
  std::string name;
  std::shared_ptr<const OrderedJson> parameters;  // the schema of its arguments; null: any
  std::string where;                              // the schema's name in errors
  bool strict = false;  // calls follow the schema even where they need not come
};

struct AnswerGrammarRequest {
  enum class Calls : uint8_t {
    kNone,     // the content alone counts
    kAllowed,  // content or calls
    kForced,   // calls, no content
  };

  std::string_view syntax;  // OutputFormat::tool_syntax(); empty: no calls are understood
  Calls calls = Calls::kNone;
  bool parallel = true;  // several calls may come
  std::vector<CallableTool> tools = {};
  // The form of the content, a format; null: any text.
  std::shared_ptr<const OrderedJson> content = {};
  // Special tokens of the model that the family's syntax has.
  std::vector<std::pair<std::string, int32_t>> special_tokens = {};
};

// The format of the answer behind its reasoning, but all of the answer of harmony. An error names
// the field: a tool's schema that cannot be enforced, or calls that are asked for where none are
// understood.
Result<OrderedJson> answer_grammar(const AnswerGrammarRequest& request);

// `answer` behind reasoning that ends with a text; `begin` is empty where it has begun.
OrderedJson behind_reasoning(const std::string& begin, const std::string& end, OrderedJson answer);

}  // namespace atom::server
