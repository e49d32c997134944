// --config FILE.yaml: options in a file, as vLLM's users keep them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom::cli {

// One "key: value" a line, a list as "[a, b]" or as lines "- a" below its key, '#' comments, quotes
// as in YAML. true and false are options without a value: --key and --no-key. An error names the
// file and the line; nested objects are one.
Result<std::vector<std::string>> parse_config_file(std::string_view text, std::string_view path);

// `args` with each --config FILE replaced by what the file says, in front of everything else, so
// that the command line wins.
Result<std::vector<std::string>> expand_config_files(std::span<const std::string> args);

}  // namespace atom::cli
