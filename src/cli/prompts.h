// The prompts of `generate`: arguments, files with one per line, JSON Lines, standard input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/request_output.h"

namespace atom::cli {

// A prompt, or why there is none: one bad prompt does not keep the others from being served.
using PromptEntry = Result<Prompt>;

// Text, or with `as_token_ids` the ids that it lists.
PromptEntry make_prompt(std::string_view text, bool as_token_ids);

// Arguments in order, where "-" is all of standard input as one prompt, then `file` ("-" for
// standard input, empty for none). A file named *.jsonl, or one whose first character is '{', holds
// {"prompt": TEXT} or {"prompt_token_ids": [ID, ...]} per line; another one prompt per line.
// Empty lines are left out. An error when something cannot be read.
Result<std::vector<PromptEntry>> read_prompts(const std::vector<std::string>& arguments,
                                              const std::string& file,
                                              bool as_token_ids);

}  // namespace atom::cli
