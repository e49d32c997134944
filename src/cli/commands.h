// The subcommands, one file each.
#pragma once

#include <string>
#include <vector>

#include "cli/option.h"

namespace atom::cli {

Command make_serve_command();
Command make_generate_command();
Command make_chat_command();
Command make_bench_command();
Command make_bench_serve_command();
Command make_plan_command();
Command make_inspect_command();
Command make_doctor_command();
Command make_pull_command();

// All of them, in the order of --help.
std::vector<Command> make_commands();

// atom engine-core, which a front end runs and no user. `arguments`: what follows the command.
int run_engine_core(const std::vector<std::string>& arguments);

}  // namespace atom::cli
