#include "cli/commands.h"

namespace atom::cli {

std::vector<Command> make_commands() {
  return {make_serve_command(),
          make_generate_command(),
          make_chat_command(),
          make_bench_command(),
          make_bench_serve_command(),
          make_plan_command(),
          make_inspect_command(),
          make_pull_command(),
          make_doctor_command()};
}

}  // namespace atom::cli
