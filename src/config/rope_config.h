// How positions are rotated into queries and keys: the rope keys of config.json in one form,
// whichever spelling ("rope_scaling" + "rope_theta", or "rope_parameters") the file uses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace atom {

enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

const char* rope_type_name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  int32_t rotary_dim = 0;  // head_dim * partial_rotary_factor, even; the rotated part of a head

  // Context extension factor; 1 for kDefault. Absent in the file for yarn and longrope:
  // max_position_embeddings / original_max_position_embeddings.
  double factor = 1.0;
  // llama3, yarn, longrope: the context length before extension. Otherwise
  // max_position_embeddings.
  int32_t original_max_position_embeddings = 0;
  int32_t max_position_embeddings = 0;

  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3

  double beta_fast = 32.0;  // yarn
  double beta_slow = 1.0;   // yarn
  bool truncate = true;     // yarn: round the correction range outwards to whole pairs
  double mscale = 0.0;      // yarn; 0 = absent
  double mscale_all_dim = 0.0;
  std::optional<double> attention_factor;  // yarn, longrope: multiplies cos and sin

  std::vector<double> short_factor;  // longrope, one per pair: rotary_dim / 2
  std::vector<double> long_factor;

  // Position-dependent query scaling 1 + beta * ln(1 + floor(p / original_max)); 0 = none.
  double llama_4_scaling_beta = 0.0;

  bool operator==(const RopeConfig&) const = default;
};

}  // namespace atom
