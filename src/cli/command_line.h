// Reads the arguments of a command. Underscores for dashes, --name=value and --name value, and "--"
// before arguments that begin with a dash are accepted everywhere.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/option.h"

namespace atom::cli {

struct ParsedArguments {
  bool help = false;
  std::vector<std::string> arguments;  // what is not an option, in order
};

// Calls set() of every option given. An error says what is wrong and which name may be meant.
Result<ParsedArguments> parse_arguments(const Command& command, std::span<const std::string> args);

}  // namespace atom::cli
