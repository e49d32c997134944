// Inside fused_moe on a GPU: x in codes of FP8, where the call has it so.
#pragma once

#include <cstdint>

namespace atom::ops {

struct MoeTokenCodes {
  const uint8_t* values = nullptr;  // [tokens, hidden_size], rows at multiples of 16 bytes
  const float* scales = nullptr;    // [tokens, ceil(hidden_size / 128)]
  int64_t stride = 0;               // of rows of values

  constexpr bool defined() const { return values != nullptr; }
};

}  // namespace atom::ops
