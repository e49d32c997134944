#include "structured_output/grammar_check.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "base/json.h"
#include "base/json_text.h"
#include "structured_output/pattern_limits.h"
#include "structured_output/xgrammar_objects.h"

namespace atom {
namespace {

constexpr size_t kMaxMessageBytes = 400;
// XGrammar makes rules of more, in which it escapes nothing.
constexpr int64_t kMaxJsonRepetition = 128;

template <typename Body>
Status checked(const std::string& where, Body&& body) {
  const Status status = guarded(body);
  if (status.ok()) return {};
  return {status.code(), where + ": " + status.message().substr(0, kMaxMessageBytes)};
}

}  // namespace

Status check_regex(const std::string& pattern, const std::string& where) {
  if (pattern.empty()) return invalid_argument("{}: expected a text that is not empty", where);
  RETURN_IF_ERROR(check_regex_size(pattern, where));
  return checked(where, [&] { (void)xgrammar::Grammar::FromRegex(pattern); });
}

Status check_json_pattern(const std::string& pattern, const std::string& where) {
  RETURN_IF_ERROR(check_regex(pattern, where));
  RETURN_IF_ERROR(check_repetitions(pattern, kMaxJsonRepetition, where));
  const OrderedJson schema = {{"type", "string"}, {"pattern", pattern}};
  bool is_escaped = false;
  RETURN_IF_ERROR(checked(where, [&] {
    const std::string rules = xgrammar::Grammar::FromJSONSchema(json_text(schema)).ToString();
    is_escaped = rules.find("json_string=true") != std::string::npos;
  }));
  if (is_escaped) return {};
  return unimplemented("{}: this pattern is not supported in JSON", where);
}

Status check_ebnf(const std::string& grammar, const std::string& where) {
  if (grammar.empty()) return invalid_argument("{}: expected a text that is not empty", where);
  RETURN_IF_ERROR(check_ebnf_size(grammar, where));
  return checked(where, [&] { (void)xgrammar::Grammar::FromEBNF(grammar); });
}

Status check_structural_tag(const std::string& text, const std::string& where) {
  return checked(where, [&] {
    const auto result = xgrammar::Grammar::FromStructuralTag(text);
    if (const auto* error = std::get_if<xgrammar::StructuralTagError>(&result)) {
      std::visit([](const auto& e) { throw std::runtime_error(e.what()); }, *error);
    }
  });
}

}  // namespace atom
