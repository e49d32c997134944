#include "base/human.h"

#include <fmt/core.h>

#include <cmath>

namespace atom {

std::string human_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string human_count(double count) {
  if (count < 1000) return fmt::format("{:.0f}", count);
  const char* unit = "";
  for (const char* next : {"K", "M", "B", "T"}) {
    if (count < 1000) break;
    count /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", count, unit);
}

std::string human_duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace atom
