// How long prompts or answers are. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "bench_serve/random.h"

namespace atom::bench_serve {

constexpr int32_t kMaxLength = 1 << 20;  // tokens

class LengthDistribution {
 public:
  static LengthDistribution fixed(int32_t length) { return {Kind::kFixed, double(length), 0}; }
  static LengthDistribution uniform(int32_t low, int32_t high) {
    return {Kind::kUniform, double(low), double(high)};
  }

  // "512", "uniform:LOW:HIGH" (both included), "normal:MEAN:STD" or "lognormal:MEAN:STD", where
  // mean and standard deviation are those of the length. Commas may stand for the colons.
  static Result<LengthDistribution> parse(std::string_view text);

  // Between 1 and kMaxLength tokens.
  int32_t sample(Random* random) const;

  // A fixed length L becomes uniform in [L * (1 - ratio), L * (1 + ratio)]; an error for others.
  Result<LengthDistribution> spread(double ratio) const;

  bool is_fixed() const { return kind_ == Kind::kFixed; }
  // The same with lengths of at most `limit`.
  LengthDistribution at_most(int32_t limit) const;
  // The length that is rarely passed, for fitting into a context.
  int32_t usual_max() const;
  std::string to_string() const;

 private:
  enum class Kind { kFixed, kUniform, kNormal, kLognormal };
  LengthDistribution(Kind kind, double first, double second)
      : kind_(kind), first_(first), second_(second) {}

  Kind kind_;
  double first_;   // length, low or mean
  double second_;  // high or standard deviation
  int32_t limit_ = kMaxLength;
};

}  // namespace atom::bench_serve
