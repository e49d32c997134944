// What a quantized matrix consists of: how its values are stored, and how many of them share a
// scale by which they are multiplied.
#pragma once

#include <cstdint>

namespace atom {

enum class QuantDType : uint8_t {
  kFloat8E4M3,
  kInt8,        // symmetric, -128 to 127
  kFloat4E2M1,  // two in a byte, the first in the lower half
  kInt4,        // likewise, -8 to 7 stored as 0 to 15
};

// "fp8", "int8", "fp4" or "int4".
const char* quant_dtype_name(QuantDType dtype);

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
