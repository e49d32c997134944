#include "bench_serve/length_distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace atom::bench_serve {
namespace {

constexpr const char* kForms = "a length, uniform:LOW:HIGH, normal:MEAN:STD or lognormal:MEAN:STD";

std::optional<double> parse_figure(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  if (value < 0 || value > kMaxLength) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = std::min(text.find_first_of(":,"), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_length(double value) {
  return value >= 1 && value == std::floor(value);
}

}  // namespace

Result<LengthDistribution> LengthDistribution::parse(std::string_view text) {
  const Status wrong = invalid_argument("'{}' is no length; expected {}, with lengths from 1 to {}",
                                        text.substr(0, 100),
                                        kForms,
                                        kMaxLength);
  const std::vector<std::string_view> parts = split(text);
  if (parts.size() == 1) {
    const std::optional<double> length = parse_figure(parts[0]);
    if (!length || !is_length(*length)) return wrong;
    return LengthDistribution(Kind::kFixed, *length, 0);
  }
  if (parts.size() != 3) return wrong;
  const std::optional<double> first = parse_figure(parts[1]);
  const std::optional<double> second = parse_figure(parts[2]);
  if (!first || !second) return wrong;
  if (parts[0] == "uniform") {
    if (!is_length(*first) || !is_length(*second) || *first > *second) return wrong;
    return LengthDistribution(Kind::kUniform, *first, *second);
  }
  if (*first < 1) return wrong;
  if (parts[0] == "normal") return LengthDistribution(Kind::kNormal, *first, *second);
  if (parts[0] == "lognormal") return LengthDistribution(Kind::kLognormal, *first, *second);
  return wrong;
}

int32_t LengthDistribution::sample(Random* random) const {
  double length = first_;
  if (kind_ == Kind::kUniform) {
    length = static_cast<double>(random->between(static_cast<int64_t>(first_), int64_t(second_)));
  } else if (kind_ == Kind::kNormal) {
    length = first_ + second_ * random->normal();
  } else if (kind_ == Kind::kLognormal) {
    const double variance = std::log1p(second_ * second_ / (first_ * first_));
    const double mean = std::log(first_) - variance / 2;
    length = std::exp(mean + std::sqrt(variance) * random->normal());
  }
  return static_cast<int32_t>(std::clamp<double>(std::round(length), 1, limit_));
}

Result<LengthDistribution> LengthDistribution::spread(double ratio) const {
  if (ratio == 0) return *this;
  if (kind_ != Kind::kFixed) {
    return invalid_argument("a range ratio needs a fixed length, not {}", to_string());
  }
  const double low = std::max(1.0, std::floor(first_ * (1 - ratio)));
  const double high = std::min<double>(kMaxLength, std::ceil(first_ * (1 + ratio)));
  return LengthDistribution(Kind::kUniform, low, high);
}

LengthDistribution LengthDistribution::at_most(int32_t limit) const {
  LengthDistribution limited = *this;
  limited.limit_ = std::clamp(limit, 1, limit_);
  return limited;
}

int32_t LengthDistribution::usual_max() const {
  double length = first_;
  if (kind_ == Kind::kUniform) length = second_;
  if (kind_ == Kind::kNormal || kind_ == Kind::kLognormal) length = first_ + 3 * second_;
  return static_cast<int32_t>(std::clamp<double>(std::ceil(length), 1, limit_));
}

std::string LengthDistribution::to_string() const {
  switch (kind_) {
    case Kind::kFixed:
      return fmt::format("{}", std::min<double>(first_, limit_));
    case Kind::kUniform:
      return fmt::format("uniform:{}:{}", first_, second_);
    case Kind::kNormal:
      return fmt::format("normal:{}:{}", first_, second_);
    case Kind::kLognormal:
      return fmt::format("lognormal:{}:{}", first_, second_);
  }
  return {};
}

}  // namespace atom::bench_serve
