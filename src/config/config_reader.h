// Reads typed, range-checked fields of a JSON object. A key that is absent or null counts as
// missing. Errors name the file, the field, what was found and what would be right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

class ConfigReader {
 public:
  // `json` is an object that outlives the reader; `where` (a file name, say) begins each message.
  ConfigReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null when missing

  // Fields that must be there; `meaning` explains the field when it is missing.
  Result<int64_t> require_int(std::string_view key,
                              int64_t min,
                              int64_t max,
                              std::string_view meaning) const;
  Result<double> require_double(std::string_view key,
                                double min,
                                double max,
                                std::string_view meaning) const;

  // Fields that may be missing: then the value is `fallback`. An integral float (8.0) is an
  // integer; an integer is a double.
  Result<int64_t> get_int(std::string_view key, int64_t min, int64_t max, int64_t fallback) const;
  Result<double> get_double(std::string_view key, double min, double max, double fallback) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::string> get_string(std::string_view key, std::string_view fallback) const;
  // Empty when missing. At most max_items.
  Result<std::vector<double>> get_doubles(std::string_view key, size_t max_items) const;
  Result<std::vector<std::string>> get_strings(std::string_view key, size_t max_items) const;
  // One integer or a list of them.
  Result<std::vector<int64_t>> get_ints(std::string_view key,
                                        int64_t min,
                                        int64_t max,
                                        size_t max_items) const;
  // The object under `key`, null when missing, an error when it is something else.
  Result<const Json*> get_object(std::string_view key) const;

  const std::string& where() const { return where_; }
  // "config.json: 'rope_scaling.factor' is -1; expected a number in [0, 1e6]"
  Status wrong(std::string_view key, const Json& found, std::string_view expected) const;

 private:
  Status missing(std::string_view key, std::string_view kind, std::string_view meaning) const;

  const Json& json_;
  std::string where_;
};

}  // namespace atom
