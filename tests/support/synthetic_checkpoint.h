// Checkpoints without stored weights. A case folder holds config.json and checkpoint.json, which
// gives each tensor a dtype, a shape and a generator; every element is a function of (seed, tensor
// name, element index) alone, so any program that follows the rules below writes the same bytes.
//
//   x(i)     the i-th output of splitmix64 from the state fnv1a64(name) + seed * 0xD1B54A32D192ED03
//   normal   mean + std * (sum of the four 16-bit words of x - 131070) / 37837.2
//   uniform  low + (high - low) * (x >> 11) / 2^53
//   e4m3     sign = bit 63, exponent = 4 + (x >> 8) % 6, mantissa = x & 7
//   int8     the low byte, -128 becoming -127
//   byte     the low byte
//   e8m0     base - (x & 1)
//   multiples  i * step, in int64
//
// normal and uniform are computed in double, then rounded to float32, then to the stored dtype.
#pragma once

#include <string>

#include "base/status.h"

namespace atom {

// Writes config.json and the safetensors files (with an index when there are several) of the case
// in `case_folder` into the existing folder `out_folder`.
Status materialize_checkpoint(const std::string& case_folder, const std::string& out_folder);

}  // namespace atom
