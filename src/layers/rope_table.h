// Inverse frequencies and cos/sin tables of the rope types that Hugging Face checkpoints use. Pure
// host functions; formulas of transformers' modeling_rope_utils.
#pragma once

#include <vector>

#include "config/rope_config.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

struct RopeFrequencies {
  std::vector<float> inv_freq;    // [rotary_dim / 2]
  float attention_factor = 1.0f;  // multiplies both cos and sin
};

// One fixed table serves positions [0, max_position), so that keys in the cache never change their
// rotation: when max_position passes the original context, longrope takes its long factors and
// dynamic NTK the base for max_position; below it both are the original frequencies.
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_position);

// table [max_position, rotary_dim] float32: row p = cos(p f_i) A, then sin(p f_i) A.
void fill_rope_table(const Stream& stream, const RopeFrequencies& frequencies, const Tensor& table);

}  // namespace atom
