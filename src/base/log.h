// Logging to standard error: log::info("loaded {} tensors", n). Thread-safe. Standard output
// belongs to the answer of the command and is never logged to.
//
// As text, a line is "I 12:34:56.789 message key=value ..."; as JSON, an object with "time" (RFC
// 3339, UTC), "level", "message" and the fields, valid whatever bytes were logged.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace atom::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };
enum class Format { kText, kJson };

// A named value beside the message; refers to what it is made from. The names "time", "level"
// and "message" are taken.
class Field {
 public:
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string_view>;

  Field(std::string_view name, std::string_view value) : name_(name), value_(value) {}
  Field(std::string_view name, const char* value) : Field(name, std::string_view(value)) {}
  Field(std::string_view name, bool value) : name_(name), value_(value) {}
  Field(std::string_view name, std::signed_integral auto value)
      : name_(name), value_(int64_t{value}) {}
  Field(std::string_view name, std::unsigned_integral auto value)
      : name_(name), value_(uint64_t{value}) {}
  Field(std::string_view name, double value) : name_(name), value_(value) {}

  std::string_view name() const { return name_; }
  const Value& value() const { return value_; }

 private:
  std::string_view name_;
  Value value_;
};
using Fields = std::initializer_list<Field>;

// "debug", "info", "warning", "error" or "off".
Result<Level> parse_level(std::string_view name);
const char* level_name(Level level);
void set_level(Level level);
Level level();
// "text" or "json".
Result<Format> parse_format(std::string_view name);
void set_format(Format format);
bool enabled(Level level);
void write(Level level, std::string_view message, std::span<const Field> fields = {});

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) {
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning)) {
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) {
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
  }
}

// log::info_with({{"request_id", id}, {"status", 200}}, "{} {}", method, path)
template <typename... Args>
void info_with(Fields fields, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) {
    write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...), fields);
  }
}
template <typename... Args>
void warning_with(Fields fields, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning)) {
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...), fields);
  }
}
template <typename... Args>
void error_with(Fields fields, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) {
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...), fields);
  }
}

}  // namespace atom::log
