#include "cli/human.h"

#include <fmt/format.h>

#include <cmath>

namespace atom::cli {
namespace {

// Three significant digits of a value in [0, 1024).
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

template <size_t N>
std::string scaled(uint64_t value, double step, const char* const (&units)[N]) {
  double shown = static_cast<double>(value);
  size_t unit = 0;
  // Rounding must not show "1024 KiB" or "1000 k".
  while (shown >= step - 0.5 && unit + 1 < N) {
    shown /= step;
    ++unit;
  }
  if (unit == 0) return fmt::format("{}{}", value, units[0]);
  return three_digits(shown) + units[unit];
}

}  // namespace

std::string human_bytes(uint64_t num_bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return scaled(num_bytes, 1024, kUnits);
}

std::string human_count(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " k", " M", " B", " T"};
  return scaled(count, 1000, kUnits);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const double whole = std::round(seconds);
  if (whole < 3600)
    return fmt::format("{:.0f} min {:02.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
  const double minutes = std::round(seconds / 60);
  return fmt::format("{:.0f} h {:02.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

}  // namespace atom::cli
