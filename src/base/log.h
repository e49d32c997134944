// Logging to standard error: log::info("loaded {} tensors", n). Thread-safe. Standard output
// belongs to the answer of the command and is never logged to.
#pragma once

#include <fmt/core.h>

#include <string_view>

#include "base/status.h"

namespace atom::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error" or "off".
Result<Level> parse_level(std::string_view name);
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view message);

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

}  // namespace atom::log
