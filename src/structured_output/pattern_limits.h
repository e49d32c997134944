// How large regular expressions and EBNF grammars may be. The grammar engine writes repetitions
// out, at least in part, so that a short text can stand for any amount of memory.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace atom {

inline constexpr size_t kMaxPatternBytes = 8 << 10;
inline constexpr size_t kMaxGrammarBytes = 64 << 10;
// Characters, classes and names, each counted as often as the counted repetitions around it repeat
// it.
inline constexpr int64_t kMaxPatternParts = 8'192;

// kInvalidArgument with `where` in front. What else is wrong with the text is not looked at.
Status check_regex_size(std::string_view pattern, const std::string& where);
// kUnimplemented when a counted repetition names a number above `most`.
Status check_repetitions(std::string_view pattern, int64_t most, const std::string& where);
Status check_ebnf_size(std::string_view grammar, const std::string& where);

}  // namespace atom
