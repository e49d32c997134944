// How the values of large sums travel between GPUs.
#pragma once

#include <stdint.h>

namespace atom {

enum class SumFormat : uint8_t {
  kWhole,   // as they are
  kFloat8,  // in e4m3, 32 neighbors with a scale
  kInt4,    // in 4 bits, -7 to 7, likewise
};

}  // namespace atom
