#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string_view>

#include "cli/config_file.h"
#include "config/suggest.h"

namespace atom::cli {
namespace {

// What a spelling stands for: an option, perhaps negated.
struct Match {
  size_t option = 0;
  bool negated = false;
};

// "--max_model_len" -> "--max-model-len"
std::string with_dashes(std::string_view spelling) {
  std::string name(spelling);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string negation(const std::string& name) {
  return "--no-" + name.substr(2);
}

std::optional<Match> find_option(const Command& command, const std::string& name) {
  for (size_t i = 0; i < command.options.size(); ++i) {
    const Option& option = command.options[i];
    for (const std::string& candidate : option.names) {
      if (candidate == name) return Match{i, false};
    }
    if (option.negatable && name == negation(option.names[0])) return Match{i, true};
  }
  return std::nullopt;
}

Status unknown_option(const Command& command, const std::string& name) {
  std::vector<std::string> names = {"--help"};
  for (const Option& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.negatable) names.push_back(negation(option.names[0]));
  }
  const std::string nearest = nearest_name(name, names);
  if (nearest.empty()) return invalid_argument("unknown option '{}'", name);
  return invalid_argument("unknown option '{}'; did you mean {}?", name, nearest);
}

bool is_choice(const Option& option, std::string_view text) {
  const std::string choices = "|" + option.value_name + "|";
  return !text.empty() && choices.find("|" + std::string(text) + "|") != std::string::npos;
}

// Whether `text` is the value of an option that needs none.
bool is_its_value(const Option& option, std::string_view text) {
  return is_choice(option, text) || (option.value_name == "FILE" && !text.starts_with('-'));
}

// Splits arguments into what CLI11 reads without guessing, the first name of each option followed
// by its value, and the rest. CLI11 knows no names such as -tp, and takes "[1,2]" apart.
class Normalizer {
 public:
  explicit Normalizer(const Command& command) : command_(command) {}

  Status run(std::span<const std::string> args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i] == "--") {
        positionals_.insert(positionals_.end(), args.begin() + i + 1, args.end());
        break;
      }
      if (!args[i].starts_with('-') || args[i] == "-") {
        positionals_.push_back(args[i]);
        continue;
      }
      RETURN_IF_ERROR(add_option(args, &i));
      if (help_) break;
    }
    return {};
  }

  bool help() const { return help_; }

  const std::vector<std::string>& options() const { return options_; }
  const std::vector<std::string>& positionals() const { return positionals_; }

 private:
  Status add_option(std::span<const std::string> args, size_t* i) {
    const size_t equals = args[*i].find('=');
    const std::string name = with_dashes(std::string_view(args[*i]).substr(0, equals));
    std::optional<std::string> value;
    if (equals != std::string::npos) value = args[*i].substr(equals + 1);
    if (name == "--help" || name == "-h") {
      help_ = true;
      return {};
    }
    const std::optional<Match> match = find_option(command_, name);
    if (!match) return unknown_option(command_, name);
    const Option& option = command_.options[match->option];
    if (match->negated || option.value_name.empty()) {
      if (value) return invalid_argument("{} takes no value, and got '{}'", name, *value);
      value = match->negated ? "false" : "true";
    } else if (!value && !option.implicit_value.empty()) {
      const bool next_is_value = *i + 1 < args.size() && is_its_value(option, args[*i + 1]);
      value = next_is_value ? args[++*i] : option.implicit_value;
    } else if (!value) {
      if (*i + 1 >= args.size()) {
        return invalid_argument("{} needs a value: {} {}", name, name, option.value_name);
      }
      value = args[++*i];
    }
    options_.push_back(option.names[0]);
    options_.push_back(*std::move(value));
    while (option.takes_list && has_argument(args) && *i + 1 < args.size() &&
           !args[*i + 1].starts_with('-')) {
      options_.push_back(option.names[0]);
      options_.push_back(args[++*i]);
    }
    return {};
  }

  // Else the word behind a list may be the command's own argument.
  bool has_argument(std::span<const std::string> args) const {
    return !positionals_.empty() || std::ranges::any_of(args, [](const std::string& arg) {
      return arg == "--model" || arg == "-m" || arg.starts_with("--model=");
    });
  }

  const Command& command_;
  std::vector<std::string> options_;
  std::vector<std::string> positionals_;
  bool help_ = false;
};

}  // namespace

Result<ParsedArguments> parse_arguments(const Command& command, std::span<const std::string> args) {
  ASSIGN_OR_RETURN(const std::vector<std::string> expanded, expand_config_files(args));
  Normalizer normalizer(command);
  RETURN_IF_ERROR(normalizer.run(expanded));
  ParsedArguments parsed;
  if (normalizer.help()) {
    parsed.help = true;
    return parsed;
  }
  parsed.arguments = normalizer.positionals();
  CLI::App app;
  app.set_help_flag();
  std::vector<std::vector<std::string>> values(command.options.size());
  try {
    for (size_t i = 0; i < values.size(); ++i) {
      // One value each, and no splitting of values that look like a list.
      app.add_option(command.options[i].names[0], values[i])->allow_extra_args(false);
    }
    app.parse(std::vector<std::string>(normalizer.options().rbegin(), normalizer.options().rend()));
  } catch (const CLI::Error& error) {
    return invalid_argument("{}", error.what());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Option& option = command.options[i];
    if (values[i].empty()) continue;
    const size_t first = option.repeatable ? 0 : values[i].size() - 1;
    for (size_t j = first; j < values[i].size(); ++j) RETURN_IF_ERROR(option.set(values[i][j]));
  }
  return parsed;
}

}  // namespace atom::cli
