#include "config/module_pattern.h"

#include <regex>

namespace atom {
namespace {

constexpr std::string_view kExpressionPrefix = "re:";
constexpr std::string_view kLinearClass = "Linear";
constexpr size_t kMaxLength = 512;

// '*' for any characters, '?' for one.
bool glob_matches(std::string_view glob, std::string_view name) {
  size_t g = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last one met, which takes [star_begin, n)
  size_t star_begin = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_begin = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_begin;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

// Whole components of the dotted name, at its begin or end.
bool names_part_of(std::string_view part, std::string_view name) {
  if (part.empty() || !(name.starts_with(part) || name.ends_with(part))) return false;
  if (part.size() == name.size()) return true;
  return (name.starts_with(part) && name[part.size()] == '.') ||
         (name.ends_with(part) && name[name.size() - part.size() - 1] == '.');
}

}  // namespace

struct ModulePattern::Expression {
  std::regex regex;
};

Result<ModulePattern> ModulePattern::parse(std::string text) {
  if (text.size() > kMaxLength) {
    return invalid_argument("a module pattern has {} bytes; at most {} are allowed: '{}...'",
                            text.size(),
                            kMaxLength,
                            text.substr(0, 40));
  }
  ModulePattern pattern;
  pattern.text_ = std::move(text);
  if (!pattern.text_.starts_with(kExpressionPrefix)) return pattern;
  const std::string expression = pattern.text_.substr(kExpressionPrefix.size());
  // They multiply to any number of states.
  if (expression.find('{') != std::string::npos) {
    return unimplemented("module pattern '{}': repetition counts are not supported", pattern.text_);
  }
  try {
    // Polynomial: time is bounded whatever the expression is. A file's own text comes here.
    const auto flags = std::regex::ECMAScript | std::regex_constants::__polynomial;
    pattern.expression_ =
        std::make_shared<const Expression>(Expression{std::regex(expression, flags)});
  } catch (const std::regex_error& error) {
    return invalid_argument("module pattern '{}' is no regular expression that is supported: {}",
                            pattern.text_,
                            error.what());
  }
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  if (expression_ != nullptr) {
    return std::regex_search(
        module.begin(), module.end(), expression_->regex, std::regex_constants::match_continuous);
  }
  if (text_ == kLinearClass) return true;
  if (text_.find_first_of("*?") != std::string::npos) return glob_matches(text_, module);
  return names_part_of(text_, module);
}

std::vector<ModulePattern> every_linear() {
  return {ModulePattern::parse(std::string(kLinearClass)).value()};
}

std::vector<ModulePattern> never_quantized() {
  std::vector<ModulePattern> patterns;
  for (const char* name : {"lm_head",
                           "mlp.gate",
                           "mlp.router",
                           "block_sparse_moe.gate",
                           "mlp.shared_expert_gate",
                           "eh_proj"}) {
    patterns.push_back(ModulePattern::parse(name).value());
  }
  return patterns;
}

}  // namespace atom
