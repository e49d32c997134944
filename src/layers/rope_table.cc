#include "layers/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace atom {
namespace {

// theta^(2i/d) in float32, the precision in which transformers evaluates it: at large positions one
// ulp of a frequency is visible in the angle.
std::vector<float> base_powers(double theta, int64_t rotary_dim) {
  std::vector<float> powers(rotary_dim / 2);
  for (size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    powers[i] = std::pow(static_cast<float>(theta), exponent);
  }
  return powers;
}

std::vector<float> default_frequencies(const RopeConfig& rope, double theta) {
  std::vector<float> frequencies = base_powers(theta, rope.rotary_dim);
  for (float& f : frequencies) f = 1.0f / f;
  return frequencies;
}

RopeFrequencies linear(const RopeConfig& rope) {
  RopeFrequencies result{default_frequencies(rope, rope.theta)};
  for (float& f : result.inv_freq) f /= static_cast<float>(rope.factor);
  return result;
}

// theta' = theta (factor L / max_pos - (factor - 1))^(d / (d - 2)), L = max_position
RopeFrequencies dynamic_ntk(const RopeConfig& rope, int64_t max_position) {
  const double original = rope.max_position_embeddings;
  const double length = std::max<double>(static_cast<double>(max_position), original);
  const double d = rope.rotary_dim;
  const double stretch = rope.factor * length / original - (rope.factor - 1);
  return {default_frequencies(rope, rope.theta * std::pow(stretch, d / (d - 2)))};
}

RopeFrequencies llama3(const RopeConfig& rope) {
  RopeFrequencies result{default_frequencies(rope, rope.theta)};
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto original = static_cast<float>(rope.original_max_position_embeddings);
  for (float& f : result.inv_freq) {
    const float wavelength = 2 * std::numbers::pi_v<float> / f;
    if (wavelength < original / high) continue;
    if (wavelength > original / low) {
      f /= factor;
      continue;
    }
    const float smooth = high == low ? 0.0f : (original / wavelength - low) / (high - low);
    f = (1 - smooth) * f / factor + smooth * f;
  }
  return result;
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

float yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return static_cast<float>(*rope.attention_factor);
  if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
    return static_cast<float>(yarn_mscale(rope.factor, rope.mscale) /
                              yarn_mscale(rope.factor, rope.mscale_all_dim));
  }
  return static_cast<float>(yarn_mscale(rope.factor, 1));
}

RopeFrequencies yarn(const RopeConfig& rope) {
  const double d = rope.rotary_dim;
  // The pair whose wavelength fits `rotations` times into the original context.
  const auto correction = [&](double rotations) {
    const double turns = rope.original_max_position_embeddings / (rotations * 2 * std::numbers::pi);
    return d * std::log(turns) / (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;

  RopeFrequencies result{base_powers(rope.theta, rope.rotary_dim), yarn_attention_factor(rope)};
  for (size_t i = 0; i < result.inv_freq.size(); ++i) {
    const float power = result.inv_freq[i];
    const float extrapolated = 1.0f / power;
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * power);
    const auto position = static_cast<float>((static_cast<double>(i) - low) / (high - low));
    const float kept = 1.0f - std::clamp(position, 0.0f, 1.0f);
    result.inv_freq[i] = interpolated * (1.0f - kept) + extrapolated * kept;
  }
  return result;
}

RopeFrequencies longrope(const RopeConfig& rope, int64_t max_position) {
  const bool extended = max_position > rope.original_max_position_embeddings;
  const std::vector<double>& factors = extended ? rope.long_factor : rope.short_factor;
  RopeFrequencies result{base_powers(rope.theta, rope.rotary_dim)};
  for (size_t i = 0; i < result.inv_freq.size(); ++i) {
    result.inv_freq[i] = 1.0f / (static_cast<float>(factors[i]) * result.inv_freq[i]);
  }
  if (rope.attention_factor) {
    result.attention_factor = static_cast<float>(*rope.attention_factor);
  } else if (rope.factor > 1) {
    result.attention_factor = static_cast<float>(std::sqrt(
        1 + std::log(rope.factor) / std::log(double{1.0} * rope.original_max_position_embeddings)));
  }
  return result;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_position) {
  switch (rope.type) {
    case RopeType::kDefault:
      return {default_frequencies(rope, rope.theta)};
    case RopeType::kLinear:
      return linear(rope);
    case RopeType::kDynamic:
      return dynamic_ntk(rope, max_position);
    case RopeType::kLlama3:
      return llama3(rope);
    case RopeType::kYarn:
      return yarn(rope);
    case RopeType::kLongRope:
      return longrope(rope, max_position);
  }
  return {};
}

void fill_rope_table(const Stream& stream,
                     const RopeFrequencies& frequencies,
                     const Tensor& table) {
  const auto half = static_cast<int64_t>(frequencies.inv_freq.size());
  CHECK(table.size(1) == 2 * half);
  const float factor = frequencies.attention_factor;
  stream.pool().parallel_for(table.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      float* row = table.data<float>() + p * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(p) * frequencies.inv_freq[i];
        row[i] = std::cos(angle) * factor;
        row[half + i] = std::sin(angle) * factor;
      }
    }
  });
}

}  // namespace atom
