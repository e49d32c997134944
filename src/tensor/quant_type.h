// Granularity of the scales that quantized values are multiplied by: how many values share one.
#pragma once

#include <cstdint>

namespace atom {

enum class QuantType : uint8_t {
  kNo,         // not quantized
  kPerTensor,  // one scale for all
  kPerToken,   // one for each row: an output channel of a weight, a token of activations
  kPer1x128,   // one for each 128 consecutive values of a row
  kPer1x32,    // one for each 32 consecutive values of a row
  kPer128x128,
};

// "per_Tensor"; "none" for kNo.
const char* quant_type_name(QuantType type);

}  // namespace atom
