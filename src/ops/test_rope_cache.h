// For tests of operators that rotate tokens and store them in a paged cache: where tokens go, the
// rotation in double, and the comparison of what has been rounded on the way.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "ops/rotary_embedding/rotary_embedding.h"
#include "ops/test_tensors.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {

inline constexpr int64_t kNumBlocks = 34, kBlockSize = 16, kMaxPosition = 97;

// Positions and slots of some tokens, of which every tenth is not stored.
template <typename Params>
void place_tokens(int64_t num_tokens, Params& params) {
  params.positions = Tensor::zeros({num_tokens}, DType::kInt32);
  params.slot_mapping = Tensor::zeros({num_tokens}, DType::kInt32);
  for (int64_t t = 0; t < num_tokens; ++t) {
    params.positions.template data<int32_t>()[t] =
        static_cast<int32_t>((t * 31 + 17) % kMaxPosition);
    params.slot_mapping.template data<int32_t>()[t] =
        t % 10 == 3 ? -1 : static_cast<int32_t>((t * 37 + 5) % (kNumBlocks * kBlockSize));
  }
}

// x's first elements, as many as cos_sin has for a position, rounded to `dtype`.
inline void rotate(
    const Tensor& cos_sin, RotaryStyle style, DType dtype, int64_t position, double* x) {
  const int64_t half = cos_sin.size(1) / 2;
  const float* angles = cos_sin.data<float>() + position * 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    const bool neox = style == RotaryStyle::kNeoX;
    double& first = x[neox ? i : 2 * i];
    double& second = x[neox ? i + half : 2 * i + 1];
    const double a = first, b = second;
    first = rounded(a * angles[i] - b * angles[half + i], dtype);
    second = rounded(b * angles[i] + a * angles[half + i], dtype);
  }
}

// An element of a tensor of floats or of FP8.
inline double value_at(const Tensor& tensor, int64_t index) {
  if (tensor.dtype() == DType::kFloat8E4M3) return to_float(tensor.data<Float8E4M3>()[index]);
  double value = 0;
  dispatch_float(tensor.dtype(),
                 [&]<typename T>(TypeTag<T>) { value = to_float(tensor.data<T>()[index]); });
  return value;
}

// What a cache holds of a value.
inline double stored(double value, const Tensor& cache, float scale = 1) {
  if (cache.dtype() != DType::kFloat8E4M3) return value;
  return to_float(from_float<Float8E4M3>(static_cast<float>(value / scale)));
}

// Counts elements that are not the expected ones. A float32 between may have been rounded the other
// way, so few may be `step` away, relative to values of up to 16, but none further.
class RoundedComparison {
 public:
  explicit RoundedComparison(double step) : step_(step) {}

  void add(double got, double expected, bool float8) {
    ++num_elements_;
    // A step of FP8 is an eighth of the value or 2^-9.
    const double allowed =
        float8 ? std::abs(expected) * 0x1p-3 + 0x1p-9 : step_ * (std::abs(expected) + 16);
    ASSERT_LE(std::abs(got - expected), allowed) << "should be " << expected;
    num_different_ += got != expected;
  }
  void finish(bool is_exact_dtype) const {
    if (is_exact_dtype) {
      EXPECT_LE(num_different_ * 50, num_elements_) << "of " << num_elements_;
    }
  }

 private:
  double step_;
  int64_t num_elements_ = 0, num_different_ = 0;
};

}  // namespace atom::ops
