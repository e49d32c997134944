#include "config/config_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace atom {
namespace {

// The value as a reader of the message would write it; long values are cut.
std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  constexpr size_t kMaxLength = 60;
  std::string text = json_text(value);
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return value.is_string() ? "the string " + text : text;
}

// The integer that `value` is, if it is one and fits.
std::optional<int64_t> as_int(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // Doubles up to 2^53 hold every integer; more is no size of anything.
    if (number != std::floor(number) || std::fabs(number) > 0x1p53) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::string int_range(int64_t min, int64_t max) {
  return fmt::format("an integer in [{}, {}]", min, max);
}

std::string double_range(double min, double max) {
  return fmt::format("a number in [{:g}, {:g}]", min, max);
}

}  // namespace

const Json* ConfigReader::find(std::string_view key) const {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

Status ConfigReader::wrong(std::string_view key,
                           const Json& found,
                           std::string_view expected) const {
  return invalid_argument("{}: '{}' is {}; expected {}", where_, key, describe(found), expected);
}

Status ConfigReader::missing(std::string_view key,
                             std::string_view kind,
                             std::string_view meaning) const {
  return invalid_argument("{}: missing '{}' ({}, {})", where_, key, kind, meaning);
}

Result<int64_t> ConfigReader::get_int(std::string_view key,
                                      int64_t min,
                                      int64_t max,
                                      int64_t fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> number = as_int(*value);
  if (!number || *number < min || *number > max) return wrong(key, *value, int_range(min, max));
  return *number;
}

Result<double> ConfigReader::get_double(std::string_view key,
                                        double min,
                                        double max,
                                        double fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= min && number <= max)) return wrong(key, *value, double_range(min, max));
  return number;
}

Result<int64_t> ConfigReader::require_int(std::string_view key,
                                          int64_t min,
                                          int64_t max,
                                          std::string_view meaning) const {
  if (!has(key)) return missing(key, "an integer", meaning);
  return get_int(key, min, max, 0);
}

Result<double> ConfigReader::require_double(std::string_view key,
                                            double min,
                                            double max,
                                            std::string_view meaning) const {
  if (!has(key)) return missing(key, "a number", meaning);
  return get_double(key, min, max, 0);
}

Result<bool> ConfigReader::get_bool(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong(key, *value, "true or false");
  return value->get<bool>();
}

Result<std::string> ConfigReader::get_string(std::string_view key,
                                             std::string_view fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return wrong(key, *value, "a string");
  return value->get<std::string>();
}

Result<std::vector<double>> ConfigReader::get_doubles(std::string_view key,
                                                      size_t max_items) const {
  std::vector<double> numbers;
  const Json* value = find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array() || value->size() > max_items) {
    return wrong(key, *value, fmt::format("an array of at most {} numbers", max_items));
  }
  for (const Json& item : *value) {
    if (!item.is_number()) return wrong(key, item, "an array of numbers only");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

Result<std::vector<std::string>> ConfigReader::get_strings(std::string_view key,
                                                           size_t max_items) const {
  std::vector<std::string> strings;
  const Json* value = find(key);
  if (value == nullptr) return strings;
  if (!value->is_array() || value->size() > max_items) {
    return wrong(key, *value, fmt::format("an array of at most {} strings", max_items));
  }
  for (const Json& item : *value) {
    if (!item.is_string()) return wrong(key, item, "an array of strings only");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

Result<std::vector<int64_t>> ConfigReader::get_ints(std::string_view key,
                                                    int64_t min,
                                                    int64_t max,
                                                    size_t max_items) const {
  std::vector<int64_t> numbers;
  const Json* value = find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    ASSIGN_OR_RETURN(const int64_t number, get_int(key, min, max, 0));
    numbers.push_back(number);
    return numbers;
  }
  if (value->size() > max_items) {
    return wrong(key, *value, fmt::format("at most {} integers", max_items));
  }
  for (const Json& item : *value) {
    const std::optional<int64_t> number = as_int(item);
    if (!number || *number < min || *number > max) return wrong(key, item, int_range(min, max));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<const Json*> ConfigReader::get_object(std::string_view key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_object()) return wrong(key, *value, "an object");
  return value;
}

}  // namespace atom
