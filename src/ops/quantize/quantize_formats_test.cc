// quantize to INT8, FP4 and FP8 in groups; that every code of FP4 comes back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/quantize/quantize_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

constexpr double kFloat4Values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

TEST(Float4, EveryCodeComesBackAndRoundingIsToTheNearest) {
  for (int code = 0; code < 16; ++code) {
    const float value = float4_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(std::abs(value), kFloat4Values[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(float4_from_float(value), code);
  }
  for (int i = -800; i <= 800; ++i) {
    const float value = static_cast<float>(i) / 100;
    const float got = float4_to_float(float4_from_float(value));
    double nearest = 1e9;
    for (const double magnitude : kFloat4Values) {
      nearest = std::min(nearest, std::abs(std::abs(value) - magnitude));
    }
    EXPECT_EQ(std::abs(double{value} - got), nearest) << value;
  }
  // Ties go to the code with an even mantissa.
  for (const auto& [value, code] : {std::pair(0.25f, 0),
                                    {0.75f, 2},
                                    {1.25f, 2},
                                    {1.75f, 4},
                                    {2.5f, 4},
                                    {3.5f, 6},
                                    {5.0f, 6},
                                    {100.0f, 7}}) {
    EXPECT_EQ(float4_from_float(value), code) << value;
    EXPECT_EQ(float4_from_float(-value), code | 8) << value;
  }
}

TEST(E8M0, ScalesThatPublicImplementationsGive) {
  const auto up = [](float a) { return e8m0_scale_for_float4(a, E8M0Rounding::kUp); };
  const auto even = [](float a) { return e8m0_scale_for_float4(a, E8M0Rounding::kEven); };
  for (const auto& [largest, wanted_up, wanted_even] : {std::tuple(1.0f, 125, 125),
                                                        {1.5f, 125, 125},
                                                        {3.0f, 126, 126},
                                                        {3.5f, 127, 127},
                                                        {5.0f, 127, 127},
                                                        {6.1f, 128, 127},
                                                        {7.0f, 128, 128}}) {
    EXPECT_EQ(up(largest), wanted_up) << largest;
    EXPECT_EQ(even(largest), wanted_even) << largest;
  }
  EXPECT_EQ(up(0), 0);
  EXPECT_EQ(up(INFINITY), 0xff);
  for (int exponent = 0; exponent < 255; ++exponent) {
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(exponent)), std::ldexp(1.0, exponent - 127));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(0xff)));
}

struct Format {
  DType dtype;
  QuantType granularity;
  bool is_static;
};

const Format kFormats[] = {{DType::kInt8, QuantType::kPerToken, false},
                           {DType::kInt8, QuantType::kPerTensor, true},
                           {DType::kFloat8E4M3, QuantType::kPer1x128, false},
                           {DType::kUInt8, QuantType::kPer1x32, false}};

QuantizedRows make_rows(const Format& format, int64_t num_rows, int64_t size) {
  const bool four_bits = format.dtype == DType::kUInt8;
  const int64_t width = four_bits ? size / 2 : size;
  const Tensor values = Tensor::zeros({num_rows, width + 16}, format.dtype).narrow(1, 0, width);
  Shape shape = {num_rows};
  if (format.is_static) shape = {1};
  if (four_bits) shape = {num_rows, size / 32};
  if (format.granularity == QuantType::kPer1x128) shape = {num_rows, (size + 127) / 128};
  const Tensor scales = Tensor::zeros(shape, four_bits ? DType::kUInt8 : DType::kFloat32);
  if (format.is_static) scales.data<float>()[0] = 0.023f;
  return {values, scales, format.granularity, format.is_static};
}

bool run(const char* variant,
         ThreadPool& pool,
         const Tensor& x,
         const QuantizedRows& out,
         E8M0Rounding rounding = E8M0Rounding::kUp) {
  return run_variant(variant, pool, {x, out.values, out.scales}, [&](const Placed& on) {
    return quantize_by(variant,
                       on.stream(),
                       on(x),
                       {on(out.values), on(out.scales), out.granularity, out.is_static},
                       rounding);
  });
}

double code_value(const QuantizedRows& rows, int64_t row, int64_t k) {
  const auto* bytes =
      static_cast<const uint8_t*>(rows.values.raw_data()) + row * rows.values.stride(0);
  if (rows.values.dtype() == DType::kInt8) return static_cast<int8_t>(bytes[k]);
  if (rows.values.dtype() == DType::kFloat8E4M3) return to_float(Float8E4M3{bytes[k]});
  const int nibble = bytes[k / 2] >> (k % 2 * 4) & 15;
  return (nibble & 8) != 0 ? -kFloat4Values[nibble & 7] : kFloat4Values[nibble & 7];
}

double scale_at(const QuantizedRows& rows, int64_t row, int64_t k) {
  if (rows.values.dtype() == DType::kUInt8) {
    return std::ldexp(1.0, rows.scales.data<uint8_t>()[row * rows.scales.size(1) + k / 32] - 127);
  }
  if (rows.granularity == QuantType::kPer1x128) {
    return rows.scales.data<float>()[row * rows.scales.size(1) + k / 128];
  }
  return rows.scales.data<float>()[rows.is_static ? 0 : row];
}

TEST(QuantizeFormats, CodesTimesScalesAreCloseToTheValues) {
  ThreadPool pool(2);
  for (const Format& format : kFormats) {
    for (const DType dtype : kFloatDTypes) {
      for (const int64_t size : {32, 128, 480, 4096}) {
        const Tensor x = random_tensor({9, size + 5}, dtype, 3, 2.5f).narrow(1, 0, size);
        const std::vector<double> exact = values_of(x);
        for (const char* variant : kAllVariants) {
          const QuantizedRows got = make_rows(format, 9, size);
          if (!run(variant, pool, x, got)) continue;
          for (int64_t t = 0; t < 9; ++t) {
            for (int64_t k = 0; k < size; ++k) {
              const double scale = scale_at(got, t, k), value = exact[t * size + k];
              // Half a step: of integers, of 3 bits of mantissa, of 1 (at least half of 0.5).
              const double step = format.dtype == DType::kInt8 ? scale / 2
                                  : format.dtype == DType::kFloat8E4M3
                                      ? std::abs(value) / 16 + scale * 0x1p-10
                                      : std::max(scale / 4, std::abs(value) / 4);
              ASSERT_NEAR(code_value(got, t, k) * scale, value, step * 1.00001)
                  << variant << " " << dtype_name(format.dtype) << " " << t << ", " << k;
            }
          }
        }
      }
    }
  }
}

// Rows of every magnitude that float16 has too, of zeros, with NaN and infinity.
Tensor rows_of_every_magnitude(DType dtype, int64_t num_rows, int64_t size) {
  const Tensor x = random_tensor({num_rows, size}, dtype, 7, 9.0f);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t t = 0; t < num_rows; ++t) {
      for (int64_t k = 0; k < size; ++k) {
        T& value = x.data<T>()[t * size + k];
        value = from_float<T>(to_float(value) * std::ldexp(1.0f, static_cast<int>(t) - 27));
        if (t == 5) value = from_float<T>(0.0f);
      }
    }
    x.data<T>()[6 * size + 700] = from_float<T>(NAN);
    x.data<T>()[8 * size + 33] = from_float<T>(-INFINITY);
  });
  return x;
}

void expect_the_bits_of_the_reference(const Format& format,
                                      const Tensor& x,
                                      E8M0Rounding rounding) {
  ThreadPool pool(2);
  const int64_t num_rows = x.size(0), size = x.size(1);
  const QuantizedRows expected = make_rows(format, num_rows, size);
  ASSERT_TRUE(run("reference", pool, x, expected, rounding));
  for (const char* variant : kAllVariants) {
    const QuantizedRows got = make_rows(format, num_rows, size);
    if (!run(variant, pool, x, got, rounding)) continue;
    for (int64_t t = 0; t < num_rows; ++t) {
      // Whose scale is not a number has no values.
      if (format.dtype != DType::kUInt8 && std::isnan(scale_at(expected, t, 0))) {
        EXPECT_TRUE(std::isnan(scale_at(got, t, 0))) << variant;
        continue;
      }
      for (int64_t k = 0; k < size; ++k) {
        const double a = code_value(got, t, k), b = code_value(expected, t, k);
        if (std::isnan(b)) continue;
        ASSERT_EQ(a, b) << variant << " " << dtype_name(format.dtype) << " " << t << ", " << k;
        ASSERT_EQ(scale_at(got, t, k), scale_at(expected, t, k)) << variant << " " << t;
      }
    }
  }
}

TEST(QuantizeFormats, VariantsHaveTheBitsOfTheReference) {
  for (const Format& format : kFormats) {
    for (const DType dtype : kFloatDTypes) {
      // With a part of a group at the end, and without.
      for (const int64_t size : {1056, 1152}) {
        const Tensor x = rows_of_every_magnitude(dtype, 41, size);
        for (const E8M0Rounding rounding : {E8M0Rounding::kUp, E8M0Rounding::kEven}) {
          expect_the_bits_of_the_reference(format, x, rounding);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(QuantizeFormats, NaNMakesTheScaleOfItsRowOrGroupNaN) {
  ThreadPool pool(1);
  for (const float bad : {NAN, INFINITY}) {
    const Tensor x = random_tensor({2, 64}, DType::kFloat32, 1);
    x.data<float>()[40] = bad;
    for (const char* variant : kAllVariants) {
      const QuantizedRows integers = make_rows(kFormats[0], 2, 64);
      if (!run(variant, pool, x, integers)) continue;
      EXPECT_TRUE(std::isnan(integers.scales.data<float>()[0])) << variant;
      EXPECT_FALSE(std::isnan(integers.scales.data<float>()[1])) << variant;
      const QuantizedRows four_bits = make_rows(kFormats[3], 2, 64);
      run(variant, pool, x, four_bits);
      const uint8_t* exponents = four_bits.scales.data<uint8_t>();
      EXPECT_NE(exponents[0], 0xff) << variant;
      EXPECT_EQ(exponents[1], 0xff) << variant;
      EXPECT_NE(exponents[2], 0xff) << variant;
    }
  }
}

}  // namespace
}  // namespace atom::ops
