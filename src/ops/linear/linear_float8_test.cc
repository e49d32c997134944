// linear with weights in FP8, by every dtype of x and y, against double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "ops/linear/linear.h"
#include "ops/linear/linear_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// Every code but NaN, subnormals often.
Tensor random_codes(int64_t rows, int64_t columns, uint64_t seed) {
  const Tensor codes = Tensor::empty({rows, columns}, DType::kFloat8E4M3);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto code = static_cast<uint8_t>(state >> 56);
    if ((code & 0x7f) == 0x7f) code = 0;
    if ((state >> 40 & 3) == 0) code &= 0x87;
    codes.data<Float8E4M3>()[i].bits = code;
  }
  return codes;
}

Tensor random_scales(int64_t size, uint64_t seed) {
  const Tensor scales = random_tensor({size}, DType::kFloat32, seed);
  for (int64_t i = 0; i < size; ++i)
    scales.data<float>()[i] = 0.02f + 0.01f * scales.data<float>()[i];
  return scales;
}

double value_at(const Tensor& matrix, int64_t row, int64_t column) {
  const int64_t index = row * matrix.stride(0) + column;
  if (matrix.dtype() == DType::kFloat8E4M3) return to_float(matrix.data<Float8E4M3>()[index]);
  double value = 0;
  dispatch_float(matrix.dtype(),
                 [&]<typename T>(TypeTag<T>) { value = to_float(matrix.data<T>()[index]); });
  return value;
}

// Row by row, without gaps.
std::vector<double> all_values(const Tensor& matrix) {
  std::vector<double> values;
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    for (int64_t column = 0; column < matrix.size(1); ++column) {
      values.push_back(value_at(matrix, row, column));
    }
  }
  return values;
}

double scale_at(const Tensor& scales, int64_t index) {
  if (!scales.defined()) return 1;
  return scales.data<float>()[scales.num_elements() == 1 ? 0 : index];
}

struct Operands {
  Tensor x;
  Tensor x_scales;
  Tensor rows;
  Tensor scales;
  Tensor bias;
};

// Within one rounding to y's dtype and the error bound of a float32 sum, and for each product
// `of_largest` of the largest of them, of either sign.
void expect_matches_double(const Operands& of,
                           const Tensor& y,
                           const std::string& what,
                           double of_largest = 0) {
  const int64_t in_features = of.x.size(1);
  const std::vector<double> x = all_values(of.x), rows = all_values(of.rows);
  for (int64_t t = 0; t < y.size(0); ++t) {
    for (int64_t n = 0; n < y.size(1); ++n) {
      double sum = 0;
      double magnitude = 0;
      double largest = 0;
      for (int64_t k = 0; k < in_features; ++k) {
        const double product = x[t * in_features + k] * rows[n * in_features + k];
        sum += product;
        magnitude += std::abs(product);
        largest = std::max(largest, std::abs(product));
      }
      const double scale = scale_at(of.scales, n) * scale_at(of.x_scales, t);
      double exact = sum * scale;
      if (of.bias.defined()) exact += value_at(of.bias.view({1, of.bias.size(0)}), 0, n);
      const double tolerance =
          half_ulp(y.dtype()) * std::abs(exact) * 1.01 +
          0x1p-24 * (6 + std::sqrt(in_features) * 4) * (magnitude * scale + 1) +
          of_largest * std::sqrt(in_features) * largest * scale;
      ASSERT_NEAR(value_at(y, t, n), exact, tolerance) << what << " at " << t << ", " << n;
    }
  }
}

Tensor run(const LinearVariant& variant,
           ThreadPool& pool,
           const Operands& of,
           const LinearWeight& weight,
           DType y_dtype) {
  const Tensor y = Tensor::zeros({of.x.size(0), weight.out_features}, y_dtype);
  Workspace measure;
  variant.launch(Stream::dry_run(), {of.x, weight, of.bias, y, of.x_scales}, measure);
  Workspace scratch(measure.peak_size());
  variant.launch(Stream(&pool), {of.x, weight, of.bias, y, of.x_scales}, scratch);
  return y;
}

struct Case {
  int64_t rows, out_features, in_features;
  bool bias;
  bool one_scale;
};

constexpr Case kCases[] = {{1, 1, 1, false, true},
                           {1, 64, 64, false, false},
                           {2, 63, 17, true, false},
                           {3, 65, 31, true, true},
                           {6, 200, 96, false, false},
                           {7, 130, 255, true, false},
                           {33, 97, 515, false, false},
                           {193, 70, 130, true, false},
                           {2, 100, 4099, true, false}};

Operands random_operands(const Case& c, DType x_dtype, DType y_dtype, bool one_x_scale) {
  Operands of;
  const bool float8_x = x_dtype == DType::kFloat8E4M3;
  // A gap between the rows that keeps them aligned where their length does.
  const int64_t stride = c.in_features + (c.in_features % 16 == 0 ? 16 : 2);
  of.x = float8_x ? random_codes(c.rows, stride, 4).narrow(1, 0, c.in_features)
                  : random_tensor({c.rows, stride}, x_dtype, 4).narrow(1, 0, c.in_features);
  if (float8_x) of.x_scales = random_scales(one_x_scale ? 1 : c.rows, 5);
  of.rows = random_codes(c.out_features, c.in_features, 6);
  of.scales = random_scales(c.one_scale ? 1 : c.out_features, 7);
  if (c.bias) of.bias = random_tensor({c.out_features}, y_dtype, 8);
  return of;
}

void check(const Case& c, DType x_dtype, DType y_dtype) {
  ThreadPool pool(2);
  const Operands of = random_operands(c, x_dtype, y_dtype, c.one_scale);
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
    LinearWeight weight = pack_linear_weight(Stream(&pool), of.rows, layout);
    EXPECT_EQ(weight.data.num_bytes(),
              packed_size(c.out_features, c.in_features, DType::kFloat8E4M3, layout));
    weight.scales = of.scales;
    for (const LinearVariant& variant : linear_variants()) {
      if (!runs(variant, DeviceType::kCpu, {of.x, weight, of.bias, of.x})) continue;
      const Tensor y = run(variant, pool, of, weight, y_dtype);
      expect_matches_double(of,
                            y,
                            fmt::format("{} x {} y {} [{}, {}] x {} rows",
                                        variant.name,
                                        dtype_name(x_dtype),
                                        dtype_name(y_dtype),
                                        c.out_features,
                                        c.in_features,
                                        c.rows));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LinearFloat8, MatchesDoubleWithEveryDTypeOfX) {
  for (const Case& c : kCases) {
    for (const DType dtype : kFloatDTypes) {
      for (const DType y_dtype : {dtype, DType::kFloat32}) {
        check(c, dtype, y_dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(LinearFloat8, MatchesDoubleWithXInFloat8) {
  for (const Case& c : kCases) {
    for (const DType y_dtype : kFloatDTypes) {
      check(c, DType::kFloat8E4M3, y_dtype);
      if (HasFatalFailure()) return;
    }
  }
}

// Tensor cores cut FP8 products off 13 bits below the largest before they add them.
double tensor_core_error(const std::string& variant) {
  const bool by_tensor_cores = variant == "cublaslt" || variant == "fixed" || variant == "stream" ||
                               variant == "skinny" || variant == "ordered";
  return by_tensor_cores ? 0x1p-13 : 0;
}

// False when the variant does not take the call.
bool run_on_gpu(const LinearVariant& variant,
                const Operands& of,
                const LinearWeight& weight,
                const Tensor& y) {
  ThreadPool pool(1);
  const std::vector<Tensor> tensors = {of.x, of.x_scales, weight.data, weight.scales, of.bias, y};
  return run_variant(variant.name, pool, tensors, [&](const Placed& at) {
    const auto place = [&](const Tensor& tensor) { return tensor.defined() ? at(tensor) : tensor; };
    LinearWeight placed = weight;
    placed.data = at(weight.data);
    placed.scales = place(weight.scales);
    const Tensor x = at(of.x), bias = place(of.bias), y_there = at(y);
    const LinearCall call{x, placed, bias, y_there, place(of.x_scales)};
    if (!runs(variant, at.stream().device().type, call)) return false;
    Workspace measure;
    variant.launch(Stream::dry_run(at.stream().device()), call, measure);
    Workspace scratch(at.stream(), measure.peak_size());
    variant.launch(at.stream(), call, scratch);
    at.stream().queue().synchronize();
    return true;
  });
}

constexpr Case kGpuCases[] = {{1, 512, 1536, false, true},
                              {3, 256, 4096, false, false},
                              {16, 128, 512, true, false},
                              {17, 144, 512, false, true},
                              {33, 256, 272, false, false},
                              {64, 128, 1024, true, false},
                              {301, 96, 128, false, false}};

TEST(LinearFloat8, MatchesDoubleOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kGpuCases), std::end(kGpuCases));
  std::map<std::string, int> num_runs;
  for (const Case& c : cases) {
    for (const DType x_dtype :
         {DType::kFloat8E4M3, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const DType y_dtype : kFloatDTypes) {
        const bool float8_x = x_dtype == DType::kFloat8E4M3;
        if (!float8_x && y_dtype != x_dtype && y_dtype != DType::kFloat32) continue;
        // One scale for each token or for all, with one for each row or for all.
        for (const bool one_x_scale : {c.one_scale, !c.one_scale}) {
          const Operands of = random_operands(c, x_dtype, y_dtype, one_x_scale);
          LinearWeight weight = pack_linear_weight(Stream(&pool), of.rows, WeightLayout::kRowMajor);
          weight.scales = of.scales;
          for (const LinearVariant& variant : linear_variants()) {
            if (variant.device == DeviceType::kCpu) continue;
            const Tensor y = Tensor::zeros({c.rows, c.out_features}, y_dtype);
            if (!run_on_gpu(variant, of, weight, y)) continue;
            ++num_runs[variant.name];
            const std::string what = fmt::format("{} x {} y {} [{}, {}] x {} rows",
                                                 variant.name,
                                                 dtype_name(x_dtype),
                                                 dtype_name(y_dtype),
                                                 c.out_features,
                                                 c.in_features,
                                                 c.rows);
            expect_matches_double(of, y, what, tensor_core_error(variant.name));
            if (HasFatalFailure()) return;
          }
          if (!float8_x) break;
        }
      }
    }
  }
  for (const auto& [name, count] : num_runs) RecordProperty(name, count);
  EXPECT_GT(num_runs["cuda"], 0);
  EXPECT_GT(num_runs["expanded"], 0);
  EXPECT_GT(num_runs["cublaslt"], 0) << "cuBLASLt is missing, or takes none of the cases";
}

TEST(LinearFloat8, EveryCodeIsExpandedExactly) {
  ThreadPool pool(1);
  // One row of W per code, times 1.
  Operands of;
  of.rows = Tensor::zeros({256, 2}, DType::kFloat8E4M3);
  for (int code = 0; code < 256; ++code) {
    const bool is_nan = (code & 0x7f) == 0x7f;
    of.rows.data<Float8E4M3>()[2 * code + code % 2].bits = is_nan ? 0 : static_cast<uint8_t>(code);
  }
  const LinearWeight weight = pack_linear_weight(Stream(&pool), of.rows);
  for (const DType dtype : kFloatDTypes) {
    of.x = Tensor::zeros({1, 2}, dtype);
    dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
      of.x.data<T>()[0] = of.x.data<T>()[1] = from_float<T>(1.0f);
    });
    for (const LinearVariant& variant : linear_variants()) {
      if (!runs(variant, DeviceType::kCpu, {of.x, weight, of.bias, of.x})) continue;
      const Tensor y = run(variant, pool, of, weight, DType::kFloat32);
      for (int code = 0; code < 256; ++code) {
        ASSERT_EQ(y.data<float>()[code], to_float(of.rows.data<Float8E4M3>()[2 * code + code % 2]))
            << variant.name << " " << dtype_name(dtype) << " code " << code;
      }
    }
  }
}

TEST(LinearFloat8, RowIsTheSameInEveryBatch) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kFloat8E4M3, DType::kBFloat16, DType::kFloat32}) {
    const bool float8_x = dtype == DType::kFloat8E4M3;
    const DType y_dtype = float8_x ? DType::kBFloat16 : dtype;
    Operands all;
    all.x = float8_x ? random_codes(100, 1031, 1) : random_tensor({100, 1031}, dtype, 1);
    if (float8_x) all.x_scales = random_scales(100, 2);
    LinearWeight weight = pack_linear_weight(Stream(&pool), random_codes(150, 1031, 3));
    weight.scales = random_scales(150, 4);
    for (const LinearVariant& variant : linear_variants()) {
      if (!runs(variant, DeviceType::kCpu, {all.x, weight, all.bias, all.x})) continue;
      const Tensor together = run(variant, pool, all, weight, y_dtype);
      for (int64_t t = 0; t < 100; t += 7) {
        Operands one;
        one.x = all.x.narrow(0, t, 1);
        if (float8_x) one.x_scales = all.x_scales.narrow(0, t, 1);
        const Tensor alone = run(variant, pool, one, weight, y_dtype);
        ASSERT_EQ(
            std::memcmp(alone.raw_data(), together.narrow(0, t, 1).raw_data(), alone.num_bytes()),
            0)
            << variant.name << " " << dtype_name(dtype) << " row " << t;
      }
    }
  }
}

TEST(LinearFloat8, NaNInXReachesItsRowOnly) {
  ThreadPool pool(1);
  Operands of;
  of.x = random_codes(5, 70, 1);
  of.x.data<Float8E4M3>()[2 * 70 + 69].bits = 0xff;
  of.x_scales = random_scales(5, 2);
  const LinearWeight weight = pack_linear_weight(Stream(&pool), random_codes(66, 70, 3));
  for (const LinearVariant& variant : linear_variants()) {
    if (!runs(variant, DeviceType::kCpu, {of.x, weight, of.bias, of.x})) continue;
    const Tensor y = run(variant, pool, of, weight, DType::kFloat32);
    for (int64_t i = 0; i < y.num_elements(); ++i) {
      EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 66 == 2) << variant.name << " " << i;
    }
  }
}

TEST(LinearFloat8DeathTest, RefusesWhatDoesNotGoTogether) {
  ThreadPool pool(1);
  Workspace scratch(1 << 16);
  const LinearWeight weight = pack_linear_weight(Stream(&pool), random_codes(8, 16, 1));
  const Tensor codes = random_codes(3, 16, 2);
  const Tensor y = Tensor::zeros({3, 8}, DType::kFloat32);
  EXPECT_DEATH(linear(Stream(&pool), codes, weight, Tensor(), y, scratch), "dtype is float32");
  EXPECT_DEATH(linear(Stream(&pool), codes, random_scales(2, 1), weight, Tensor(), y, scratch),
               "x_scales");
  const LinearWeight wide =
      pack_linear_weight(Stream(&pool), random_tensor({8, 16}, DType::kFloat32, 1));
  EXPECT_DEATH(linear(Stream(&pool), codes, random_scales(3, 1), wide, Tensor(), y, scratch),
               "weight.is_quantized");
}

}  // namespace
}  // namespace atom::ops
