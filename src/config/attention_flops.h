// What attention multiplies for each query and key: scores and their weighted sum, a multiply-add
// (two operations) for each element of a key and of a value.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace atom {

// Of one layer, all heads.
struct PairFlops {
  int64_t decode = 0;   // latent attention has latents as keys and values
  int64_t prefill = 0;  // where it expands them
};

// Of a configuration that a model was made of: what is no size counts as 0.
PairFlops attention_pair_flops(const ModelConfig& config);

}  // namespace atom
