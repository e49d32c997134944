// For tests of operators that leave codes of their result: codes of groups of 128, to be compared
// bit for bit.
#pragma once

#include <cstring>

#include "ops/quantize/quantized_rows.h"

namespace atom::ops {

// FP8 codes [num_rows, size] with scales of groups, which hold anything at first.
inline QuantizedRows spoiled_group_codes(int64_t num_rows, int64_t size) {
  const QuantizedRows codes = {Tensor::zeros({num_rows, size}, DType::kFloat8E4M3),
                               Tensor::zeros({num_rows, (size + 127) / 128}, DType::kFloat32),
                               QuantType::kPer1x128};
  std::memset(codes.values.raw_data(), 0x5a, codes.values.num_bytes());
  std::memset(codes.scales.raw_data(), 0x5a, codes.scales.num_bytes());
  return codes;
}

// The same for contiguous ones.
inline bool have_same_bits(const QuantizedRows& a, const QuantizedRows& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.num_bytes() == y.num_bytes() &&
           std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0;
  };
  return same(a.values, b.values) && same(a.scales, b.scales);
}

}  // namespace atom::ops
