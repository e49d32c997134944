#include "cli/config_file.h"

#include <optional>

#include "base/file.h"

namespace atom::cli {
namespace {

constexpr size_t kMaxFileSize = 1 << 20;
constexpr std::string_view kSpaces = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Without a comment, which begins with a '#' outside of quotes at the start or after a space.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || kSpaces.find(line[i - 1]) != std::string_view::npos)) {
      return line.substr(0, i);
    }
  }
  return line;
}

// Reads lines of a file into arguments.
class ConfigParser {
 public:
  explicit ConfigParser(std::string_view path) : path_(path) {}

  Status add_line(std::string_view raw) {
    ++line_;
    const std::string_view line = trim(without_comment(raw));
    if (line.empty() || line == "---") return {};
    const bool is_indented = kSpaces.find(raw[0]) != std::string_view::npos;
    if (line == "-" || line.starts_with("- ")) return add_item(trim(line.substr(1)));
    if (is_indented) return error("nested values are not supported");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return error("expected 'option: value'");
    key_ = std::string(trim(line.substr(0, colon)));
    if (key_ == "config") return error("a file cannot name another one");
    return add_value(trim(line.substr(colon + 1)));
  }

  std::vector<std::string> take() { return std::move(args_); }

 private:
  Status error(std::string_view what) const {
    return invalid_argument("{}, line {}: {}", path_, line_, what);
  }

  Status add_item(std::string_view text) {
    if (key_.empty()) return error("an item without a list");
    ASSIGN_OR_RETURN(std::string value, scalar(text));
    return add("--" + key_, std::move(value));
  }

  Status add_value(std::string_view text) {
    // A list may follow; an option without a value says null or nothing.
    if (text.empty() || text == "null" || text == "~") return {};
    if (text == "true" || text == "True") return add("--" + key_, std::nullopt);
    if (text == "false" || text == "False") return add("--no-" + key_, std::nullopt);
    if (text.front() == '[' && text.back() == ']') {
      std::string_view rest = text.substr(1, text.size() - 2);
      while (!trim(rest).empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        RETURN_IF_ERROR(add_item(trim(rest.substr(0, comma))));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
      return {};
    }
    if (text.front() == '|' || text.front() == '>' || text.front() == '&' || text.front() == '*') {
      return error("expected a plain value");
    }
    ASSIGN_OR_RETURN(std::string value, scalar(text));
    return add("--" + key_, std::move(value));
  }

  Result<std::string> scalar(std::string_view text) const {
    const char quote = text.empty() ? '\0' : text.front();
    if (quote != '"' && quote != '\'') return std::string(text);
    if (text.size() < 2 || text.back() != quote) return error("a quote is not closed");
    std::string value;
    for (size_t i = 1; i + 1 < text.size(); ++i) {
      const bool escapes = quote == '"' ? text[i] == '\\' : text[i] == '\'';
      if (escapes && i + 2 < text.size()) ++i;
      const bool is_newline = escapes && quote == '"' && text[i] == 'n';
      value += is_newline ? '\n' : text[i];
    }
    return value;
  }

  Status add(std::string name, std::optional<std::string> value) {
    args_.push_back(std::move(name));
    if (value) args_.back() += "=" + *value;
    return {};
  }

  const std::string_view path_;
  int line_ = 0;
  std::string key_;
  std::vector<std::string> args_;
};

}  // namespace

Result<std::vector<std::string>> parse_config_file(std::string_view text, std::string_view path) {
  ConfigParser parser(path);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    RETURN_IF_ERROR(parser.add_line(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parser.take();
}

Result<std::vector<std::string>> expand_config_files(std::span<const std::string> args) {
  constexpr std::string_view kOption = "--config";
  std::vector<std::string> expanded;
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool has_value = args[i].starts_with("--config=");
    if (args[i] != kOption && !has_value) {
      rest.push_back(args[i]);
      continue;
    }
    if (!has_value && i + 1 >= args.size()) {
      return invalid_argument("--config needs a value: --config FILE");
    }
    const std::string path = has_value ? args[i].substr(kOption.size() + 1) : args[++i];
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileSize));
    ASSIGN_OR_RETURN(const std::vector<std::string> added, parse_config_file(text, path));
    expanded.insert(expanded.end(), added.begin(), added.end());
  }
  expanded.insert(expanded.end(), rest.begin(), rest.end());
  return expanded;
}

}  // namespace atom::cli
