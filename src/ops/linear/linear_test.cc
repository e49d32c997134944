#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/linear/linear_test_matrices.h"
#include "ops/linear/linear_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

float unit_roundoff(DType dtype) {
  if (dtype == DType::kBFloat16) return 0x1p-8f;
  return dtype == DType::kFloat16 ? 0x1p-11f : 0x1p-24f;
}

// |y - exact| within one rounding to y's dtype and the error bound of a float32 sum.
void expect_matches_double(const Tensor& x,
                           const Tensor& rows,
                           const Tensor& bias,
                           const Tensor& y,
                           const std::string& what) {
  const int64_t in_features = x.size(1);
  const std::vector<float> x_values = all_values(x), row_values = all_values(rows);
  for (int64_t t = 0; t < y.size(0); ++t) {
    for (int64_t n = 0; n < y.size(1); ++n) {
      double exact = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < in_features; ++k) {
        const double product =
            double{x_values[t * in_features + k]} * double{row_values[n * in_features + k]};
        exact += product;
        magnitude += std::abs(product);
      }
      if (bias.defined()) exact += value_at(bias.view({1, bias.size(0)}), 0, n);
      const double tolerance = unit_roundoff(y.dtype()) * std::abs(exact) * 1.01 +
                               0x1p-24 * (2 + std::sqrt(in_features) * 4) * (magnitude + 1);
      ASSERT_NEAR(value_at(y, t, n), exact, tolerance) << what << " at " << t << ", " << n;
    }
  }
}

// Of the CPU, candidates too, that take such activations: whose rows have the same bits in every
// batch.
std::vector<LinearVariant> variants_here(const Tensor& x, const LinearWeight& weight) {
  std::vector<LinearVariant> variants;
  for (const LinearVariant& variant : linear_variants()) {
    if (variant.device != DeviceType::kCpu || variant.isa > cpu_isa()) continue;
    if (variant.supports != nullptr && !variant.supports({x, weight, {}, x})) continue;
    variants.push_back(variant);
  }
  return variants;
}

std::vector<LinearVariant> gpu_variants() {
  std::vector<LinearVariant> variants;
  for (const LinearVariant& variant : linear_variants()) {
    if (variant.device != DeviceType::kCpu && test_gpu() != nullptr) variants.push_back(variant);
  }
  return variants;
}

Tensor run(const LinearVariant& variant,
           ThreadPool& pool,
           const Tensor& x,
           const LinearWeight& weight,
           const Tensor& bias,
           DType y_dtype,
           int64_t y_gap = 0) {
  const Tensor y = make_matrix(x.size(0), weight.out_features, y_dtype, y_gap);
  Workspace measure;
  variant.launch(Stream::dry_run(), {x, weight, bias, y}, measure);
  Workspace scratch(measure.peak_size());
  variant.launch(Stream(&pool), {x, weight, bias, y}, scratch);
  EXPECT_EQ(scratch.peak_size(), measure.peak_size());
  return y;
}

struct Case {
  int64_t rows, out_features, in_features;
  bool bias;
  int64_t x_gap, weight_gap, y_gap;
};

constexpr Case kCases[] = {
    {1, 1, 1, false, 0, 0, 0},
    {1, 64, 64, false, 0, 0, 0},
    {2, 63, 17, true, 3, 1, 5},
    {3, 65, 31, true, 0, 0, 0},
    {4, 128, 128, false, 0, 0, 7},
    {5, 16, 2, true, 1, 0, 0},
    {6, 200, 96, false, 8, 0, 0},
    {7, 130, 255, true, 0, 5, 1},
    {8, 72, 512, false, 0, 0, 0},
    {13, 1, 300, true, 0, 0, 0},
    {16, 192, 1024, true, 64, 0, 64},
    {33, 97, 515, false, 1, 1, 1},
    {193, 70, 130, true, 2, 0, 2},
    {512, 64, 65, false, 0, 0, 0},
    {2, 100, 4099, true, 0, 0, 0},
};

TEST(Linear, MatchesDoubleInEveryVariant) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    for (DType dtype : kDTypes) {
      const Tensor x = random_matrix(c.rows, c.in_features, dtype, c.x_gap, 1);
      const Tensor rows = random_matrix(c.out_features, c.in_features, dtype, c.weight_gap, 2);
      for (WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
        const LinearWeight weight = pack_linear_weight(Stream(&pool), rows, layout);
        for (DType y_dtype : {dtype, DType::kFloat32}) {
          const Tensor bias = c.bias ? random_vector(c.out_features, y_dtype, 3) : Tensor();
          for (const LinearVariant& variant : variants_here(x, weight)) {
            const Tensor y = run(variant, pool, x, weight, bias, y_dtype, c.y_gap);
            expect_matches_double(x,
                                  rows,
                                  bias,
                                  y,
                                  fmt::format("{} {} [{}, {}] x {} rows",
                                              variant.name,
                                              dtype_name(dtype),
                                              c.out_features,
                                              c.in_features,
                                              c.rows));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// False when the variant does not take the call.
bool run_on_gpu(const LinearVariant& variant,
                const Tensor& x,
                const LinearWeight& weight,
                const Tensor& bias,
                const Tensor& y) {
  ThreadPool pool(1);
  return run_variant(variant.name, pool, {x, weight.data, bias, y}, [&](const Placed& at) {
    LinearWeight placed = weight;
    placed.data = at(weight.data);
    const Tensor x_there = at(x), bias_there = at(bias), y_there = at(y);
    const LinearCall call{x_there, placed, bias_there, y_there};
    if (!runs(variant, at.stream().device().type, call)) return false;
    Workspace measure;
    variant.launch(Stream::dry_run(at.stream().device()), call, measure);
    Workspace scratch(at.stream(), measure.peak_size());
    variant.launch(at.stream(), call, scratch);
    at.stream().queue().synchronize();
    return true;
  });
}

constexpr Case kGpuCases[] = {
    {1, 256, 4096, false, 0, 0, 0},
    {7, 1024, 512, true, 0, 0, 8},
    {64, 512, 1536, true, 64, 0, 0},
    {300, 256, 128, false, 8, 0, 16},
    {65, 264, 1040, true, 16, 0, 0},
    {130, 200, 512, false, 0, 0, 8},
    // Routers, and what has part of a tile of rows and of features, and of a chunk of k.
    {64, 513, 2048, false, 0, 0, 0},
    {40, 32, 2880, true, 0, 0, 4},
    {9, 100, 328, true, 8, 0, 0},
};

TEST(Linear, MatchesDoubleOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kGpuCases), std::end(kGpuCases));
  int num_by_library = 0;
  for (const Case& c : cases) {
    for (DType dtype : kDTypes) {
      const Tensor x = random_matrix(c.rows, c.in_features, dtype, c.x_gap, 1);
      const Tensor rows = random_matrix(c.out_features, c.in_features, dtype, 0, 2);
      const LinearWeight weight = pack_linear_weight(Stream(&pool), rows, WeightLayout::kRowMajor);
      for (DType y_dtype : {dtype, DType::kFloat32}) {
        const Tensor bias = c.bias ? random_vector(c.out_features, y_dtype, 3) : Tensor();
        for (const LinearVariant& variant : gpu_variants()) {
          const Tensor y = make_matrix(c.rows, c.out_features, y_dtype, c.y_gap);
          if (!run_on_gpu(variant, x, weight, bias, y)) continue;
          num_by_library += variant.name == std::string("cublaslt");
          const std::string what = fmt::format("{} {} [{}, {}] x {} rows",
                                               variant.name,
                                               dtype_name(dtype),
                                               c.out_features,
                                               c.in_features,
                                               c.rows);
          expect_matches_double(x, rows, bias, y, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(num_by_library, 0) << "cuBLASLt is missing, or takes none of the cases";
}

TEST(Linear, WritesNothingBetweenRowsOfY) {
  ThreadPool pool(2);
  for (DType dtype : kDTypes) {
    const Tensor x = random_matrix(9, 40, dtype, 0, 1);
    const LinearWeight weight =
        pack_linear_weight(Stream(&pool), random_matrix(70, 40, dtype, 0, 2));
    for (const LinearVariant& variant : variants_here(x, weight)) {
      const Tensor y = run(variant, pool, x, weight, Tensor(), dtype, 3);
      const Tensor whole(y.raw_data(), dtype, {9, 73});
      for (int64_t t = 0; t < 9; ++t) {
        for (int64_t n = 0; n < 73; ++n) {
          EXPECT_EQ(std::isnan(value_at(whole, t, n)), n >= 70) << variant.name;
        }
      }
    }
  }
}

TEST(Linear, RowIsTheSameInEveryBatch) {
  ThreadPool pool(2);
  for (DType dtype : kDTypes) {
    const int64_t in_features = 1031;
    const Tensor all = random_matrix(512, in_features, dtype, 0, 1);
    const Tensor rows = random_matrix(150, in_features, dtype, 0, 2);
    const Tensor bias = random_vector(150, dtype, 3);
    const LinearWeight weight = pack_linear_weight(Stream(&pool), rows);
    for (const LinearVariant& variant : variants_here(all, weight)) {
      std::vector<std::vector<char>> alone;
      for (int64_t t = 0; t < all.size(0); ++t) {
        const Tensor y = run(variant, pool, all.narrow(0, t, 1), weight, bias, dtype);
        alone.push_back(row_bytes(y, 0));
      }
      for (int64_t batch : {2, 3, 7, 16, 33, 512}) {
        // Beginning elsewhere than row 0 moves rows to other positions of a tile.
        const int64_t first = batch == 512 ? 0 : 5;
        const Tensor y = run(variant, pool, all.narrow(0, first, batch), weight, bias, dtype);
        for (int64_t t = 0; t < batch; ++t) {
          ASSERT_EQ(row_bytes(y, t), alone[first + t])
              << variant.name << " " << dtype_name(dtype) << " row " << t << " of " << batch;
        }
      }
    }
  }
}

TEST(Linear, ThreadCountDoesNotChangeBits) {
  for (DType dtype : kDTypes) {
    const Tensor x = random_matrix(201, 600, dtype, 0, 1);
    const Tensor rows = random_matrix(333, 600, dtype, 0, 2);
    for (int64_t num_rows : {1, 17, 201}) {
      ThreadPool one(1);
      const LinearWeight weight = pack_linear_weight(Stream(&one), rows);
      for (const LinearVariant& variant : variants_here(x, weight)) {
        const Tensor x_rows = x.narrow(0, 0, num_rows);
        const Tensor expected = run(variant, one, x_rows, weight, Tensor(), dtype);
        for (int num_threads : {2, 3}) {
          ThreadPool pool(num_threads);
          const LinearWeight again = pack_linear_weight(Stream(&pool), rows);
          ASSERT_EQ(
              std::memcmp(weight.data.raw_data(), again.data.raw_data(), weight.data.num_bytes()),
              0);
          const Tensor y = run(variant, pool, x_rows, again, Tensor(), dtype);
          ASSERT_EQ(std::memcmp(y.raw_data(), expected.raw_data(), y.num_bytes()), 0)
              << variant.name << " " << num_threads << " threads";
        }
      }
    }
  }
}

// Among calls of other rows and weights each result has the bits of its own call.
TEST(Linear, ManyCallsGiveWhatEachGivesAlone) {
  constexpr int64_t kRows[] = {1, 200, 3, 7};
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    const Stream stream(&pool);
    for (DType dtype : kDTypes) {
      std::vector<Tensor> x, y, biases;
      std::vector<LinearWeight> weights;
      int64_t num_rows = 0;
      for (const int64_t rows : kRows) {
        const int seed = static_cast<int>(rows);
        x.push_back(random_matrix(rows, 300, dtype, 4, seed));
        y.push_back(make_matrix(rows, 150, DType::kFloat32, 0));
        weights.push_back(pack_linear_weight(stream, random_matrix(150, 300, dtype, 0, seed + 1)));
        biases.push_back(random_vector(150, dtype, seed + 2));
        num_rows += rows;
      }
      std::vector<LinearCall> calls;
      for (size_t i = 0; i < x.size(); ++i) calls.push_back({x[i], weights[i], biases[i], y[i]});
      // A dry run of as many rows by one weight measures what all calls take.
      const Tensor all_x = Tensor::meta({num_rows, 300}, dtype);
      const Tensor all_y = Tensor::meta({num_rows, 150}, DType::kFloat32);
      const LinearCall all = {all_x, weights[0], biases[0], all_y};
      Workspace measure;
      linear_many(Stream::dry_run(), {&all, 1}, measure);
      Workspace scratch(measure.peak_size());
      linear_many(stream, calls, scratch);
      for (size_t i = 0; i < x.size(); ++i) {
        const Tensor alone = make_matrix(kRows[i], 150, DType::kFloat32, 0);
        Workspace large(1 << 20);
        linear(stream, x[i], weights[i], biases[i], alone, large);
        ASSERT_EQ(std::memcmp(y[i].raw_data(), alone.raw_data(), alone.num_bytes()), 0)
            << dtype_name(dtype) << " " << kRows[i] << " rows, " << num_threads << " threads";
      }
    }
  }
}

TEST(Linear, NotANumberAndInfinityStayInTheirRowAndColumn) {
  ThreadPool pool(2);
  const float infinity = std::numeric_limits<float>::infinity();
  for (DType dtype : kDTypes) {
    const Tensor x = random_matrix(8, 33, dtype, 0, 1);
    const Tensor rows = random_matrix(66, 33, dtype, 0, 2);
    dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
      x.data<T>()[2 * 33 + 32] = from_float<T>(NAN);
      x.data<T>()[5 * 33 + 7] = from_float<T>(infinity);
      rows.data<T>()[65 * 33 + 0] = from_float<T>(NAN);
    });
    const LinearWeight weight = pack_linear_weight(Stream(&pool), rows);
    for (const LinearVariant& variant : variants_here(x, weight)) {
      const Tensor y = run(variant, pool, x, weight, Tensor(), dtype);
      for (int64_t t = 0; t < 8; ++t) {
        for (int64_t n = 0; n < 66; ++n) {
          const float value = value_at(y, t, n);
          EXPECT_EQ(std::isnan(value), t == 2 || n == 65) << variant.name << t << "," << n;
          if (t == 5 && n != 65) {
            EXPECT_EQ(value, std::copysign(infinity, value_at(rows, n, 7)));
          }
        }
      }
    }
  }
}

TEST(Linear, RoundsOnceToNearestEvenAndKeepsExtremes) {
  ThreadPool pool(1);
  // x and the weight are zero: y is the bias, rounded.
  const Tensor bias = Tensor::empty({3}, DType::kFloat32);
  bias.data<float>()[0] = 1.0f + 0x1p-8f;             // halfway, to even: 1
  bias.data<float>()[1] = 1.0f + 0x1p-8f + 0x1p-20f;  // just above: 1 + 2^-7
  bias.data<float>()[2] = 0x1.fffp127f;               // past the largest: infinity
  const Tensor x = Tensor::zeros({1, 1}, DType::kBFloat16);
  const LinearWeight weight =
      pack_linear_weight(Stream(&pool), Tensor::zeros({3, 1}, DType::kBFloat16));
  for (const LinearVariant& variant : variants_here(x, weight)) {
    const Tensor y = run(variant, pool, x, weight, bias, DType::kBFloat16);
    EXPECT_EQ(value_at(y, 0, 0), 1.0f) << variant.name;
    EXPECT_EQ(value_at(y, 0, 1), 1.0f + 0x1p-7f) << variant.name;
    EXPECT_TRUE(std::isinf(value_at(y, 0, 2))) << variant.name;
  }
}

TEST(Linear, EntryPointRunsAndAcceptsNoRows) {
  ThreadPool pool(2);
  const Tensor rows = random_matrix(80, 50, DType::kBFloat16, 0, 2);
  const LinearWeight weight = pack_linear_weight(Stream(&pool), rows);
  const Tensor x = random_matrix(4, 50, DType::kBFloat16, 0, 1);
  const Tensor y = make_matrix(4, 80, DType::kFloat32, 0);
  Workspace measure;
  linear(Stream::dry_run(), Tensor::meta({4, 50}, DType::kBFloat16), weight, {}, y, measure);
  Workspace scratch(measure.peak_size());
  linear(Stream(&pool), x, weight, {}, y, scratch);
  expect_matches_double(x, rows, {}, y, "linear()");
  linear(Stream(&pool), x.narrow(0, 0, 0), weight, {}, y.narrow(0, 0, 0), scratch);
}

TEST(LinearDeathTest, WrongShapesAndDtypes) {
  ThreadPool pool(1);
  const LinearWeight weight =
      pack_linear_weight(Stream(&pool), random_matrix(8, 6, DType::kFloat32, 0, 1));
  Workspace scratch(4096);
  const auto call = [&](const Shape& x, const Shape& y, DType x_dtype, DType y_dtype) {
    linear(
        Stream(&pool), Tensor::zeros(x, x_dtype), weight, {}, Tensor::zeros(y, y_dtype), scratch);
  };
  const DType f32 = DType::kFloat32;
  EXPECT_DEATH(call({2, 7}, {2, 8}, f32, f32), "in_features");
  EXPECT_DEATH(call({2, 6}, {2, 9}, f32, f32), "out_features");
  EXPECT_DEATH(call({2, 6}, {3, 8}, f32, f32), "dimension 0");
  EXPECT_DEATH(call({2, 6}, {2, 8}, DType::kBFloat16, f32), "dtype");
  EXPECT_DEATH(call({2, 6}, {2, 8}, f32, DType::kFloat16), "dtype");
}

}  // namespace
}  // namespace atom::ops
