// Whether XGrammar can read a text of one of its languages, which limits its size first. An error
// is kInvalidArgument or kUnimplemented and begins with `where`. Any thread.
#pragma once

#include <string>

#include "base/status.h"

namespace atom {

Status check_regex(const std::string& pattern, const std::string& where);
// The pattern of a string in JSON. kUnimplemented also for patterns that XGrammar would not escape
// there, such as those of more than 128 repetitions.
Status check_json_pattern(const std::string& pattern, const std::string& where);
Status check_ebnf(const std::string& grammar, const std::string& where);
// A tag of any size.
Status check_structural_tag(const std::string& text, const std::string& where);

}  // namespace atom
