#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace atom::cli {
namespace {

constexpr size_t kOptionIndent = 2;
constexpr size_t kHelpIndent = 6;

// Lines of at most `width` columns, each behind `indent` spaces. Line feeds in `text` stay.
std::string wrap(std::string_view text, size_t indent, size_t width) {
  const std::string margin(indent, ' ');
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view paragraph = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t column = 0;
    while (!paragraph.empty()) {
      const size_t stop = std::min(paragraph.find(' '), paragraph.size());
      const std::string_view word = paragraph.substr(0, stop);
      paragraph.remove_prefix(std::min(stop + 1, paragraph.size()));
      if (column > 0 && column + 1 + word.size() > width) {
        result += '\n';
        column = 0;
      }
      if (column == 0) {
        result += margin;
        column = indent;
      } else {
        result += ' ';
        ++column;
      }
      result += word;
      column += word.size();
    }
    result += '\n';
  }
  return result;
}

// "--top-k INT", "--[no-]ignore-eos", "--load-dummy [none|zero]", then the other spellings
std::string heading(const Option& option) {
  const std::string& name = option.names[0];
  std::string text = option.negatable ? "--[no-]" + name.substr(2) : name;
  if (!option.negatable && !option.value_name.empty()) {
    text += option.implicit_value.empty() ? " " + option.value_name
                                          : fmt::format(" [{}]", option.value_name);
  }
  for (size_t i = 1; i < option.names.size(); ++i) text += ", " + option.names[i];
  return text;
}

std::string facts(const Option& option) {
  std::string text;
  const auto add = [&](const std::string& fact) { text += (text.empty() ? "" : "; ") + fact; };
  if (!option.range.empty()) add(option.range);
  if (!option.default_value.empty()) add("default " + option.default_value);
  if (option.repeatable) add("may be repeated");
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string program_help(std::span<const Command> commands, size_t width) {
  std::string text = "usage: atom COMMAND [OPTIONS] CHECKPOINT ...\n\n";
  text += wrap(
      "Runs large language models from a checkpoint folder (config.json, *.safetensors, "
      "tokenizer).",
      0,
      width);
  text += "\nCommands:\n";
  for (const Command& command : commands) {
    const std::string name = fmt::format("  {:<11}  ", command.name);
    text += name + wrap(command.summary, name.size(), width).substr(name.size());
  }
  text +=
      "\nOptions:\n"
      "  -h, --help   this text; after a command, its options\n"
      "  --version    the version\n\n";
  return text +
         wrap("Exit codes: 0 fine, 1 something failed, 2 wrong usage, 130 interrupted.", 0, width);
}

std::string command_help(const Command& command, size_t width) {
  std::string text = fmt::format("usage: atom {} [OPTIONS]{}{}\n\n{}",
                                 command.name,
                                 command.arguments.empty() ? "" : " ",
                                 command.arguments,
                                 wrap(command.description, 0, width));
  std::vector<std::string> groups;
  for (const Option& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  for (const std::string& group : groups) {
    text += fmt::format("\n{}:\n", group);
    for (const Option& option : command.options) {
      if (option.group != group) continue;
      text += wrap(heading(option), kOptionIndent, width);
      text += wrap(option.help + facts(option), kHelpIndent, width);
    }
  }
  text += "\n  -h, --help\n      This text.\n";
  return text;
}

}  // namespace atom::cli
