#include "cli/commands.h"

namespace atom::cli {

std::vector<Command> make_commands() {
  return {make_generate_command(),
          make_chat_command(),
          make_bench_command(),
          make_plan_command(),
          make_inspect_command()};
}

}  // namespace atom::cli
