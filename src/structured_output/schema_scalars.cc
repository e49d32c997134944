#include "structured_output/schema_scalars.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "structured_output/grammar_check.h"
#include "structured_output/schema_rules.h"

namespace atom {
namespace {

constexpr int64_t kMaxLength = 4'096;  // of strings and arrays, where the schema says one
constexpr double kMaxInteger = 9007199254740992.0;  // 2^53
constexpr int64_t kMaxMultiple = 256;
constexpr int64_t kMaxMultiples = 1'000;

Result<std::string> text_of(const OrderedJson& value, const std::string& place) {
  if (!value.is_string()) return invalid_argument("{}: expected a string", place);
  return value.get<std::string>();
}

// The bounds as the engine takes them; whole numbers for integers.
Result<OrderedJson> bounds_of(const OrderedJson& schema,
                              const std::string& type,
                              const std::string& place) {
  OrderedJson out = {{"type", type}};
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (!schema.contains(keyword)) continue;
    const OrderedJson& value = schema[keyword];
    if (!value.is_number())
      return invalid_argument("{}: expected a number", place_of(place, keyword));
    const double bound = value.get<double>();
    if (!std::isfinite(bound) || std::abs(bound) > kMaxInteger) {
      return invalid_argument("{}: expected a number within 2^53 of 0", place_of(place, keyword));
    }
    if (type == "number") {
      out[keyword] = value;
      continue;
    }
    // x > 1.5 is x >= 2, and x > 1 stays.
    const bool is_lower = std::string_view(keyword).ends_with("inimum");
    const bool is_whole = bound == std::floor(bound);
    const char* name = is_whole ? keyword : is_lower ? "minimum" : "maximum";
    const auto whole = static_cast<int64_t>(is_lower ? std::ceil(bound) : std::floor(bound));
    if (out.contains(name)) {
      const auto other = out[name].get<int64_t>();
      out[name] = is_lower ? std::max(other, whole) : std::min(other, whole);
    } else {
      out[name] = whole;
    }
  }
  return out;
}

}  // namespace

std::string place_of(const std::string& place, std::string_view name) {
  return fmt::format("{}.{}", place, name.substr(0, 80));
}

Result<int64_t> count_of(const OrderedJson& schema,
                         const char* keyword,
                         const std::string& place,
                         int64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const OrderedJson& value = schema[keyword];
  const bool is_count = value.is_number() && value.get<double>() >= 0 &&
                        value.get<double>() == std::floor(value.get<double>());
  if (!is_count)
    return invalid_argument("{}: expected a whole number >= 0", place_of(place, keyword));
  if (value.get<double>() > static_cast<double>(kMaxLength)) {
    return invalid_argument("{}: expected at most {}", place_of(place, keyword), kMaxLength);
  }
  return static_cast<int64_t>(value.get<double>());
}

Status check_range(const std::string& place, int64_t low, int64_t high, std::string_view what) {
  if (high < 0 || low <= high) return {};
  return invalid_argument("{}: no number of {} is between {} and {}", place, what, low, high);
}

Result<OrderedJson> string_schema(const OrderedJson& schema, const std::string& place) {
  OrderedJson out = {{"type", "string"}};
  const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
  const int num_rules = static_cast<int>(has_length) +
                        static_cast<int>(schema.contains("pattern")) +
                        static_cast<int>(schema.contains("format"));
  if (num_rules > 1) {
    return unimplemented("{}: of pattern, format and lengths only one is supported at once", place);
  }
  if (schema.contains("pattern")) {
    const std::string below = place_of(place, "pattern");
    ASSIGN_OR_RETURN(const std::string pattern, text_of(schema["pattern"], below));
    if (std::ranges::any_of(pattern, [](char c) { return c < ' ' || c > '~'; })) {
      return unimplemented("{}: only patterns of printable ASCII are supported", below);
    }
    RETURN_IF_ERROR(check_json_pattern(pattern, below));
    out["pattern"] = pattern;
  } else if (schema.contains("format")) {
    const std::string below = place_of(place, "format");
    ASSIGN_OR_RETURN(const std::string format, text_of(schema["format"], below));
    RETURN_IF_ERROR(check_format(format, below));
    out["format"] = format;
  } else if (has_length) {
    ASSIGN_OR_RETURN(const int64_t low, count_of(schema, "minLength", place, 0));
    ASSIGN_OR_RETURN(const int64_t high, count_of(schema, "maxLength", place, -1));
    RETURN_IF_ERROR(check_range(place, low, high, "characters"));
    if (low > 0) out["minLength"] = low;
    if (high >= 0) out["maxLength"] = high;
  }
  return out;
}

Result<OrderedJson> number_schema(const OrderedJson& schema,
                                  const std::string& type,
                                  const std::string& place) {
  ASSIGN_OR_RETURN(OrderedJson out, bounds_of(schema, type, place));
  if (!schema.contains("multipleOf")) return out;
  const std::string below = place_of(place, "multipleOf");
  const OrderedJson& value = schema["multipleOf"];
  if (!value.is_number() || value.get<double>() <= 0) {
    return invalid_argument("{}: expected a number > 0", below);
  }
  const double multiple = value.get<double>();
  if (multiple != std::floor(multiple) || multiple > static_cast<double>(kMaxMultiple)) {
    return unimplemented("{}: only whole numbers up to {} are supported", below, kMaxMultiple);
  }
  const auto step = static_cast<int64_t>(multiple);
  out["type"] = "integer";
  if (type == "number") {
    // Whole numbers are what multiples of whole numbers are.
    ASSIGN_OR_RETURN(out, bounds_of(schema, "integer", place));
  }
  if (out.size() == 1) {
    if (step > 1) out["multipleOf"] = step;
    return out;
  }
  int64_t low = std::max(
      out.value("minimum", INT64_MIN),
      out.contains("exclusiveMinimum") ? out["exclusiveMinimum"].get<int64_t>() + 1 : INT64_MIN);
  int64_t high = std::min(
      out.value("maximum", INT64_MAX),
      out.contains("exclusiveMaximum") ? out["exclusiveMaximum"].get<int64_t>() - 1 : INT64_MAX);
  if (low == INT64_MIN || high == INT64_MAX || (high - low) / step > kMaxMultiples) {
    return unimplemented(
        "{}: with bounds, only up to {} multiples between two of them are supported",
        below,
        kMaxMultiples);
  }
  OrderedJson multiples = OrderedJson::array();
  for (int64_t x = low + ((-low % step) + step) % step; x <= high; x += step)
    multiples.push_back(x);
  if (multiples.empty()) return invalid_argument("{}: no multiple is within the bounds", below);
  return OrderedJson{{"enum", std::move(multiples)}};
}

}  // namespace atom
