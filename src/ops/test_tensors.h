// For tests of operators: random tensors, their values in double, and the distance to expected
// ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dispatch.h"
#include "tensor/tensor.h"

namespace atom::ops {

inline const std::vector<const char*> kAllVariants = {"reference", "avx2", "avx512"};
inline const std::vector<DType> kFloatDTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Uniform in [-scale, scale), the same for the same seed.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, float scale = 1.0f) {
  Tensor tensor = Tensor::zeros(shape, dtype);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float unit = static_cast<float>(state >> 40) * 0x1p-24f;
      tensor.data<T>()[i] = from_float<T>((unit * 2 - 1) * scale);
    }
  });
  return tensor;
}

inline Tensor copy_of(const Tensor& tensor) {
  Tensor copy = Tensor::zeros(tensor.shape(), tensor.dtype());
  copy_convert(tensor, copy);
  return copy;
}

// In row-major order whatever the strides.
inline std::vector<double> values_of(const Tensor& tensor) {
  Tensor floats = Tensor::zeros(tensor.shape(), DType::kFloat32);
  copy_convert(tensor, floats);
  return {floats.data<float>(), floats.data<float>() + floats.num_elements()};
}

// Half a unit in the last place of a dtype, relative.
inline double half_ulp(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

inline double rounded(double value, DType dtype) {
  double result = value;
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    result = to_float(from_float<T>(static_cast<float>(value)));
  });
  return result;
}

// |got - expected| <= absolute + relative * |expected|, for each element.
inline void expect_close(const Tensor& got,
                         const std::vector<double>& expected,
                         double relative,
                         double absolute,
                         const std::string& what) {
  const std::vector<double> values = values_of(got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = absolute + relative * std::abs(expected[i]);
    ASSERT_LE(std::abs(values[i] - expected[i]), allowed)
        << what << ": element " << i << " is " << values[i] << ", should be " << expected[i];
    ASSERT_FALSE(std::isnan(values[i])) << what << ": element " << i;
  }
}

}  // namespace atom::ops
