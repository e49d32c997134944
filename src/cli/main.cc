// The executable: finds the subcommand and runs it. Standard output carries the answer only;
// everything else goes to standard error.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "config/suggest.h"
#include "engine/core_arguments.h"

namespace {

using namespace atom;       // NOLINT
using namespace atom::cli;  // NOLINT

// Only calls that a signal handler may make. Chat replaces it.
void exit_interrupted(int) {
  constexpr char kClearLine[] = "\r\x1b[K";
  if (isatty(STDERR_FILENO) != 0) (void)!write(STDERR_FILENO, kClearLine, sizeof kClearLine - 1);
  _exit(kExitInterrupted);
}

int unknown_command(const std::string& name, const std::vector<Command>& commands) {
  std::vector<std::string> names = {"--help", "--version"};
  for (const Command& command : commands) names.push_back(command.name);
  const std::string nearest = nearest_name(name, names);
  const char* what = name.starts_with('-') ? "option" : "command";
  return fail_usage(
      "",
      nearest.empty() ? invalid_argument("unknown {} '{}'", what, name)
                      : invalid_argument("unknown {} '{}'; did you mean {}?", what, name, nearest));
}

// Of help: what a terminal has, up to what is still easy to read.
size_t columns_of(std::FILE* stream) {
  constexpr int kMost = 100, kLeast = 40;
  if (!is_terminal(stream)) return kMost;
  return static_cast<size_t>(std::clamp(terminal_width(stream), kLeast, kMost));
}

int print_help(const std::string& text) {
  return write_out(text) ? kExitOk : end_of_output();
}

size_t num_words(const Command& command) {
  return 1 + static_cast<size_t>(std::count(command.name.begin(), command.name.end(), ' '));
}

// The command that the first words name, the longest if "a" and "a b" are both one; null for none.
const Command* find_command(const std::vector<Command>& commands,
                            std::span<const std::string> words) {
  const Command* found = nullptr;
  for (const Command& command : commands) {
    const size_t count = num_words(command);
    if (count > words.size() || (found != nullptr && count <= num_words(*found))) continue;
    std::string name = words[0];
    for (size_t i = 1; i < count; ++i) name += " " + words[i];
    if (name == command.name) found = &command;
  }
  return found;
}

int run_command(const Command& command, std::span<const std::string> args) {
  const Result<ParsedArguments> parsed = parse_arguments(command, args);
  if (!parsed.ok()) return fail_usage(command.name, parsed.status());
  if (parsed->help) return print_help(command_help(command, columns_of(stdout)));
  return command.run(parsed->arguments);
}

int run(const std::vector<std::string>& args) {
  const std::vector<Command> commands = make_commands();
  if (args.empty()) {
    fmt::print(stderr, "{}", program_help(commands, columns_of(stderr)));
    return kExitUsage;
  }
  const std::string& name = args[0];
  const std::span<const std::string> rest = std::span(args).subspan(1);
  if (name == "--version") {
    return write_out(fmt::format("atom {}\n", ATOM_VERSION)) ? kExitOk : end_of_output();
  }
  const bool help = name == "--help" || name == "-h" || name == "help";
  if (help && rest.empty()) return print_help(program_help(commands, columns_of(stdout)));
  const std::span<const std::string> words = help ? rest : std::span(args);
  const Command* command = find_command(commands, words);
  if (command == nullptr) return unknown_command(words[0], commands);
  if (help) return print_help(command_help(*command, columns_of(stdout)));
  return run_command(*command, words.subspan(num_words(*command)));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  // A reader that went away is seen where writing fails.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    // Keeps the signals as its front end has set them.
    if (!args.empty() && args[0] == kEngineCoreCommand) {
      return run_engine_core({args.begin() + 1, args.end()});
    }
    std::signal(SIGINT, exit_interrupted);
    return run(args);
  } catch (const std::bad_alloc&) {
    return fail(resource_exhausted("out of memory"));
  } catch (const std::exception& error) {
    return fail(internal_error("{}", error.what()));
  }
}
