// Inside attention: operands in float32.
#pragma once

#include <stdint.h>

namespace atom::ops {

// Products in float32 of operands expanded from any element type.
template <typename SimdType, int kMaxVectors>
struct Float32Math {
  using Simd = SimdType;
  using Operand = float;
  using Packed = typename Simd::Float;
  static constexpr int kDepth = 1;
  static constexpr int kRows = 6;
  static constexpr int kVectors = kMaxVectors;

  static Packed broadcast(const float* p) { return Simd::set(*p); }
  static Packed load_packed(const float* p) { return Simd::load(p); }
  static Packed packed(typename Simd::Float units) { return units; }
  static Packed multiply_add(Packed a, Packed b, Packed c) { return Simd::fma(a, b, c); }
  static void store_weights(float* p, Packed weights) { Simd::store(p, weights); }

  template <typename T>
  static Packed load_units(const T* row, int64_t begin) {
    return Simd::load(row + begin);
  }
  template <typename T>
  static Packed load_units(const T* row, int64_t begin, int64_t count) {
    return Simd::load(row + begin, count);
  }
  template <typename T>
  static void copy_operands(const T* from, int64_t size, float* to) {
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(from + i));
    if (i < size) Simd::store(to + i, size - i, Simd::load(from + i, size - i));
  }
  // A vector of one row.
  template <typename T>
  static inline __attribute__((always_inline)) void load_values(const char* const* rows,
                                                                int64_t dim,
                                                                Packed* values) {
    values[0] = Simd::load(reinterpret_cast<const T*>(rows[0]) + dim);
  }
  // One row, padded with zeros to whole vectors.
  template <typename T>
  static void interleave(const char* const* rows, int64_t size, float* to) {
    const T* row = reinterpret_cast<const T*>(rows[0]);
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(row + i));
    if (i < size) Simd::store(to + i, Simd::load(row + i, size - i));
  }
};

}  // namespace atom::ops
