// Inside linear, for files compiled for AVX2 or AVX-512: activations packed as float32. Everything
// has internal linkage, as in linear_avx2.h.
#pragma once

#include <immintrin.h>
#include <string.h>

#include <cstdint>

namespace atom::ops::linear_kernels {
namespace {

struct ReadBFloat16 {
  using Stored = uint16_t;
  static inline float read(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
  }
};

struct ReadFloat16 {
  using Stored = uint16_t;
  static inline float read(uint16_t value) { return _cvtsh_ss(value); }
};

struct ReadFloat32 {
  using Stored = float;
  static inline float read(float value) { return value; }
};

// kValues floats a row and step, zero past in_features up to a multiple of kMultiple.
template <typename Read, int kValues, int kMultiple = kValues>
void pack_floats(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const typename Read::Stored* from = reinterpret_cast<const typename Read::Stored*>(
        static_cast<const char*>(x) + r * row_stride);
    float* to = static_cast<float*>(packed) + r * kValues;
    int64_t k = 0;
    for (; k < in_features; ++k) {
      to[k / kValues * rows * kValues + k % kValues] = Read::read(from[k]);
    }
    for (; k % kMultiple != 0; ++k) to[k / kValues * rows * kValues + k % kValues] = 0.0f;
  }
}

}  // namespace
}  // namespace atom::ops::linear_kernels
