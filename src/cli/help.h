// The texts of --help.
#pragma once

#include <span>
#include <string>

#include "cli/option.h"

namespace atom::cli {

std::string program_help(std::span<const Command> commands);
std::string command_help(const Command& command);

}  // namespace atom::cli
