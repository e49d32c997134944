#include "ops/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/quantize/quantize_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint8_t code_of(float value) {
  return from_float<Float8E4M3>(value).bits;
}

// The codes that public implementations give these values.
TEST(Float8, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(code_of(0.1f), 0x1d);
  EXPECT_EQ(code_of(0.3f), 0x2a);
  EXPECT_EQ(code_of(1.0f), 0x38);
  EXPECT_EQ(code_of(3.3f), 0x45);
  EXPECT_EQ(code_of(100.0f), 0x6c);
  EXPECT_EQ(code_of(248.0f), 0x78);
  EXPECT_EQ(code_of(300.0f), 0x79);
  EXPECT_EQ(code_of(0x1p-9f), 0x01);
  EXPECT_EQ(code_of(0x1p-10f), 0x00);
  EXPECT_EQ(code_of(3 * 0x1p-10f), 0x02);
  EXPECT_EQ(code_of(-0.02f), 0x8a);
  EXPECT_EQ(code_of(10000.0f), 0x7e);
  EXPECT_EQ(code_of(-kInfinity), 0xfe);
  EXPECT_EQ(code_of(NAN) & 0x7f, 0x7f);
  EXPECT_EQ(code_of(-0.0f), 0x80);
}

TEST(Float8, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = to_float(Float8E4M3{static_cast<uint8_t>(code)});
    EXPECT_EQ(std::isnan(value), (code & 0x7f) == 0x7f) << code;
    if (std::isnan(value)) continue;
    EXPECT_EQ(code_of(value), code);
  }
  EXPECT_EQ(to_float(Float8E4M3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(Float8E4M3{0x08}), 0x1p-6f);
  EXPECT_EQ(to_float(Float8E4M3{0x87}), -7 * 0x1p-9f);
}

// Float32 values whose bits cover all exponents, and everything halfway between two codes.
Tensor hard_values() {
  std::vector<float> values = {
      0.0f, -0.0f, NAN, -NAN, kInfinity, -kInfinity, 448, 464, 465, 1e-45f};
  for (int code = 0; code < 0x7e; ++code) {
    const float low = to_float(Float8E4M3{static_cast<uint8_t>(code)});
    const float high = to_float(Float8E4M3{static_cast<uint8_t>(code + 1)});
    const float middle = (low + high) / 2;
    for (const float value :
         {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  values.resize((values.size() + 3) / 4 * 4);
  const Tensor tensor = Tensor::empty({1, static_cast<int64_t>(values.size())}, DType::kFloat32);
  std::memcpy(tensor.raw_data(), values.data(), tensor.num_bytes());
  return tensor;
}

// False when the variant cannot run the call here.
bool run(const char* variant, ThreadPool& pool, const Tensor& x, const QuantizedRows& out) {
  return run_variant(variant, pool, {x, out.values, out.scales}, [&](const Placed& on) {
    return quantize_by(variant,
                       on.stream(),
                       on(x),
                       {on(out.values), on(out.scales), out.granularity, out.is_static});
  });
}

QuantizedRows per_token(const Tensor& values, const Tensor& scales) {
  return {values, scales, QuantType::kPerToken, false};
}

QuantizedRows per_tensor(const Tensor& values, const Tensor& scale) {
  return {values, scale, QuantType::kPerTensor, true};
}

TEST(Quantize, VariantsRoundLikeTheReference) {
  ThreadPool pool(1);
  const Tensor x = hard_values();
  const Tensor one = Tensor::zeros({1}, DType::kFloat32);
  one.data<float>()[0] = 1.0f;
  for (const char* variant : kAllVariants) {
    const Tensor values = Tensor::zeros(x.shape(), DType::kFloat8E4M3);
    if (!run(variant, pool, x, per_tensor(values, one))) continue;
    for (int64_t i = 0; i < x.size(1); ++i) {
      const float value = x.data<float>()[i];
      ASSERT_EQ(values.data<Float8E4M3>()[i].bits, code_of(value)) << variant << " of " << value;
    }
  }
}

TEST(Quantize, ScalesEachTokenByItsLargestValue) {
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t size : {1, 7, 64, 100, 4099}) {
      const Tensor storage = random_tensor({33, size + 3}, dtype, 5, 3.0f);
      const Tensor x = storage.narrow(1, 0, size);
      const std::vector<double> exact = values_of(x);
      for (const char* variant : kAllVariants) {
        const Tensor values = Tensor::zeros({33, size + 5}, DType::kFloat8E4M3).narrow(1, 0, size);
        const Tensor scales = Tensor::zeros({33}, DType::kFloat32);
        if (!run(variant, pool, x, per_token(values, scales))) continue;
        for (int64_t t = 0; t < 33; ++t) {
          double largest = 0;
          for (int64_t k = 0; k < size; ++k) {
            largest = std::max(largest, std::abs(exact[t * size + k]));
          }
          const float scale = static_cast<float>(largest) / 448.0f;
          ASSERT_EQ(scales.data<float>()[t], scale) << variant;
          for (int64_t k = 0; k < size; ++k) {
            const auto value = static_cast<float>(exact[t * size + k]);
            const Float8E4M3 got = values.data<Float8E4M3>()[t * values.stride(0) + k];
            ASSERT_EQ(got.bits, code_of(value / scale)) << variant << " " << dtype_name(dtype);
            // Half a unit of 3 bits of mantissa, or of the smallest step.
            ASSERT_NEAR(to_float(got) * scale, value, std::abs(value) / 16 + scale * 0x1p-10f);
          }
        }
      }
    }
  }
}

// Rows that vector variants take as well, up to the longest, whose values and scales reach the ends
// of float32's range: every code and scale has the reference's bits.
TEST(Quantize, VariantsAgreeOverTheWholeRangeOfFloat32) {
  constexpr int64_t kRows = 13;
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t size : {8, 1032, 16384}) {
      const Tensor x = random_tensor({kRows, size}, dtype, 11);
      dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
        for (int64_t t = 0; t < kRows; ++t) {
          const float magnitude = std::ldexp(1.0f, static_cast<int>(t * 19 - 120));
          T* row = x.data<T>() + t * size;
          for (int64_t k = 0; k < size; ++k) row[k] = from_float<T>(to_float(row[k]) * magnitude);
        }
      });
      for (const bool is_static : {false, true}) {
        for (const float scale : {0.013f, 1e-42f, 3e38f}) {
          const Tensor scales = Tensor::zeros({is_static ? 1 : kRows}, DType::kFloat32);
          scales.data<float>()[0] = scale;
          const Tensor expected = Tensor::zeros({kRows, size}, DType::kFloat8E4M3);
          const Tensor expected_scales = copy_of(scales);
          const auto rows = is_static ? per_tensor : per_token;
          ASSERT_TRUE(run("reference", pool, x, rows(expected, expected_scales)));
          for (const char* variant : kAllVariants) {
            const Tensor values = Tensor::zeros({kRows, size}, DType::kFloat8E4M3);
            if (!run(variant, pool, x, rows(values, scales))) continue;
            const std::string what =
                fmt::format("{} {} size {} scale {}", variant, dtype_name(dtype), size, scale);
            ASSERT_EQ(
                std::memcmp(scales.raw_data(), expected_scales.raw_data(), scales.num_bytes()), 0)
                << what;
            if (std::memcmp(values.raw_data(), expected.raw_data(), values.num_bytes()) == 0)
              continue;
            for (int64_t i = 0; i < values.num_elements(); ++i) {
              const Float8E4M3 got = values.data<Float8E4M3>()[i];
              const Float8E4M3 wanted = expected.data<Float8E4M3>()[i];
              // Which NaN infinity / infinity is differs between processors.
              if (std::isnan(to_float(got)) && std::isnan(to_float(wanted))) continue;
              ASSERT_EQ(got.bits, wanted.bits) << what << " at " << i;
            }
          }
          if (!is_static) break;
        }
      }
    }
  }
}

TEST(Quantize, FindsNaNWhereverItIs) {
  ThreadPool pool(2);
  for (const bool on_gpu : {false, true}) {
    if (on_gpu && test_gpu() == nullptr) continue;
    for (const Shape& shape : {Shape{1, 3}, Shape{5, 77}, Shape{300, 1024}}) {
      const Tensor codes = Tensor::zeros(shape, DType::kFloat8E4M3);
      for (int64_t i = 0; i < codes.num_elements(); ++i) {
        codes.data<Float8E4M3>()[i].bits = static_cast<uint8_t>(i * 37 % 127 | (i & 1) << 7);
      }
      const auto found = [&] {
        const Placed placed(on_gpu, pool, {codes});
        return holds_nan(placed.stream(), placed(codes));
      };
      EXPECT_FALSE(found());
      for (const int64_t at : {int64_t{0}, codes.num_elements() / 2, codes.num_elements() - 1}) {
        const Float8E4M3 before = codes.data<Float8E4M3>()[at];
        codes.data<Float8E4M3>()[at].bits = at % 2 == 0 ? 0x7f : 0xff;
        EXPECT_TRUE(found()) << shape.to_string() << " at " << at;
        codes.data<Float8E4M3>()[at] = before;
      }
    }
  }
}

TEST(Quantize, RowsOfZerosAndNaNHarmNoOther) {
  ThreadPool pool(1);
  const Tensor x = Tensor::zeros({3, 40}, DType::kFloat32);
  x.data<float>()[40 + 7] = NAN;
  x.data<float>()[40 + 8] = 2.0f;
  x.data<float>()[80] = -448.0f;
  for (const char* variant : kAllVariants) {
    const Tensor values = Tensor::zeros({3, 40}, DType::kFloat8E4M3);
    const Tensor scales = Tensor::zeros({3}, DType::kFloat32);
    if (!run(variant, pool, x, per_token(values, scales))) continue;
    EXPECT_EQ(scales.data<float>()[0], 1.0f) << variant;
    EXPECT_EQ(scales.data<float>()[1], 2.0f / 448.0f) << variant;
    EXPECT_EQ(scales.data<float>()[2], 1.0f) << variant;
    const Float8E4M3* codes = values.data<Float8E4M3>();
    EXPECT_EQ(codes[0].bits, 0) << variant;
    EXPECT_TRUE(std::isnan(to_float(codes[40 + 7]))) << variant;
    EXPECT_EQ(codes[40 + 8].bits, 0x7e) << variant;
    EXPECT_EQ(codes[40 + 9].bits, 0) << variant;
    EXPECT_EQ(codes[80].bits, 0xfe) << variant;
  }
}

}  // namespace
}  // namespace atom::ops
