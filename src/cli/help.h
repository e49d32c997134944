// The texts of --help, in lines of at most `width` columns where their words allow it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cli/option.h"

namespace atom::cli {

std::string program_help(std::span<const Command> commands, size_t width);
std::string command_help(const Command& command, size_t width);

}  // namespace atom::cli
