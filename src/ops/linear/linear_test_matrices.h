// For tests of linear: random matrices, whose rows may have gaps between them, and their values.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/dispatch.h"
#include "tensor/tensor.h"

namespace atom::ops {

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// A view [rows, columns] whose rows lie `gap` elements further apart than they must; the gaps hold
// NaN, so that reading them shows.
inline Tensor make_matrix(int64_t rows, int64_t columns, DType dtype, int64_t gap) {
  Tensor storage = Tensor::empty({rows, columns + gap}, dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    T* data = storage.data<T>();
    for (int64_t i = 0; i < storage.num_elements(); ++i) data[i] = from_float<T>(NAN);
  });
  return storage.narrow(1, 0, columns);
}

inline Tensor random_matrix(int64_t rows, int64_t columns, DType dtype, int64_t gap, int seed) {
  Tensor matrix = make_matrix(rows, columns, dtype, gap);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t r = 0; r < rows; ++r) {
      T* row = matrix.data<T>() + r * matrix.stride(0);
      for (int64_t c = 0; c < columns; ++c) row[c] = from_float<T>(uniform(random));
    }
  });
  return matrix;
}

inline Tensor random_vector(int64_t size, DType dtype, int seed) {
  return random_matrix(1, size, dtype, 0, seed).view({size});
}

inline float value_at(const Tensor& matrix, int64_t row, int64_t column) {
  float value = 0;
  dispatch_float(matrix.dtype(), [&]<typename T>(TypeTag<T>) {
    value = to_float(matrix.data<T>()[row * matrix.stride(0) + column]);
  });
  return value;
}

// Row by row, without gaps.
inline std::vector<float> all_values(const Tensor& matrix) {
  std::vector<float> values;
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    for (int64_t column = 0; column < matrix.size(1); ++column) {
      values.push_back(value_at(matrix, row, column));
    }
  }
  return values;
}

// Bytes of a row.
inline std::vector<char> row_bytes(const Tensor& matrix, int64_t row) {
  const int64_t element_size = dtype_size(matrix.dtype());
  const char* begin =
      static_cast<const char*>(matrix.raw_data()) + row * matrix.stride(0) * element_size;
  return {begin, begin + matrix.size(1) * element_size};
}

}  // namespace atom::ops
