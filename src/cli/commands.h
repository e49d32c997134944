// The subcommands, one file each.
#pragma once

#include <vector>

#include "cli/option.h"

namespace atom::cli {

Command make_generate_command();
Command make_chat_command();
Command make_bench_command();
Command make_plan_command();
Command make_inspect_command();

// All of them, in the order of --help.
std::vector<Command> make_commands();

}  // namespace atom::cli
