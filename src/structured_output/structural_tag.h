// What clients ask of an answer, in the one form that is compiled: formats of XGrammar's structural
// tags, which are JSON. What cannot be enforced, or would be too large, is refused here, before
// anything runs. `where` is the name of what is wrong in errors. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// The size of a whole structural tag, as text.
inline constexpr size_t kMaxStructuralTagBytes = 512 << 10;

// JSON that follows a schema.
Result<OrderedJson> json_schema_format(const OrderedJson& schema, const std::string& where);
// Any JSON object.
OrderedJson json_object_format();
// The whole answer matches.
Result<OrderedJson> regex_format(const std::string& pattern, const std::string& where);
// EBNF, from the rule `root`.
Result<OrderedJson> ebnf_format(const std::string& grammar, const std::string& where);
// One of these texts.
Result<OrderedJson> choice_format(const std::vector<std::string>& choices,
                                  const std::string& where);
// A client's own structural tag, or its older form with "structures" and "triggers".
Result<OrderedJson> structural_tag_format(const OrderedJson& tag, const std::string& where);

// The text that GrammarCompiler takes, checked as far as that can be without a vocabulary.
Result<std::string> structural_tag_text(OrderedJson format, const std::string& where);

}  // namespace atom
