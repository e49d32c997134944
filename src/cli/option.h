// What a command line is made of: options and commands as data, from which parsing, --help and
// docs/cli.md come.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom::cli {

constexpr int kExitOk = 0;
constexpr int kExitError = 1;  // the input, the checkpoint or the machine
constexpr int kExitUsage = 2;  // the command line
constexpr int kExitInterrupted = 130;

struct Option {
  std::vector<std::string> names;  // with dashes; errors and --help lead with the first
  std::string group;               // heading in --help
  std::string value_name;          // empty: takes no value, and set() gets "true"
  std::string implicit_value;      // of the option without a value; empty: it needs one
  std::string range;               // "[1, 1024]", or empty
  std::string default_value;       // empty: none to show
  std::string help;
  bool negatable = false;   // --no-<name> sets "false"
  bool repeatable = false;  // else the last one counts
  // Repeatable, and takes several values behind one another where the command has its argument.
  bool takes_list = false;

  // Parses, checks the range and stores. An error names the option, the value and what is expected.
  std::function<Status(const std::string& value)> set;
};

// Options that only store. `target` outlives them.
Option text_option(std::string name,
                   std::string group,
                   std::string value_name,
                   std::string help,
                   std::string* target);
Option switch_option(std::string name, std::string group, std::string help, bool* target);
// An integer in [min, max]; `*target` is the default.
Option int_option(std::string name,
                  std::string group,
                  int32_t min,
                  int32_t max,
                  std::string help,
                  int32_t* target);

struct Command {
  std::string name;         // "generate"
  std::string arguments;    // "CHECKPOINT [PROMPT...]"
  std::string summary;      // one line, for the list of commands
  std::string description;  // paragraphs for its own --help
  std::vector<Option> options;
  // Runs with what is not an option; returns the exit code.
  std::function<int(const std::vector<std::string>& arguments)> run;
};

}  // namespace atom::cli
