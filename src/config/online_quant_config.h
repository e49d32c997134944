// Quantization of an unquantized checkpoint while it is loaded.
#pragma once

#include <string>

#include "base/status.h"
#include "config/quant_config.h"

namespace atom {

enum class OnlineQuantization {
  kFp8,    // FP8, a scale for each row of a weight and for each token
  kInt8,   // likewise in INT8
  kMxFp4,  // weights and activations in FP4, a power of two for each 32 values
};

// Every linear layer alike but those that are never quantized (the head, routers, and the up
// projection of latent attention).
QuantConfig online_quant_config(OnlineQuantization quantization);

// From JSON: {"global_quant_config": format, "layer_quant_config": {pattern: format},
// "exclude_layer": [pattern, ...]}, all of them optional. A format is ptpc_fp8 or fp8, int8, mxfp4;
// other keys and formats are refused by name.
Result<QuantConfig> parse_online_quant_config(const std::string& text);

}  // namespace atom
