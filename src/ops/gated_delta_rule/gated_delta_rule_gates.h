// Inside gated_delta_rule: a token's two gates. Everything has internal linkage, because files of
// several instruction sets include it.
#pragma once

#include <math.h>

namespace atom::ops {
namespace {

// The natural logarithm of the factor by which the state decays.
inline float log_decay(float a, float a_log, float dt_bias) {
  const float x = a + dt_bias;
  return -expf(a_log) * (x > 20.0f ? x : log1pf(expf(x)));
}

// How much of the difference between a value and what the state holds under its key is written.
inline float write_strength(float b) {
  return 1.0f / (1.0f + expf(-b));
}

}  // namespace
}  // namespace atom::ops
