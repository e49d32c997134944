// linear by tiles, whose instructions are emulated on processors without them: packing, the walk
// over tiles and what is done with sums. linear_test runs the variant where it is there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/cpu_info.h"
#include "ops/linear/linear_test_matrices.h"
#include "ops/linear/linear_variants.h"
#include "ops/simd/amx_emulator.h"

namespace atom::ops {
namespace {

using linear_kernels::kAmxBFloat16;
using linear_kernels::kAmxInt8;
using linear_kernels::StoreTable;
using linear_kernels::TileKernels;

template <typename T>
void store_rows(
    const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride) {
  for (int r = 0; r < rows; ++r) {
    T* row = reinterpret_cast<T*>(static_cast<char*>(y) + r * row_stride);
    for (int c = 0; c < columns; ++c) {
      row[c] = from_float<T>(sums[r * 64 + c] + (bias == nullptr ? 0.0f : bias[c]));
    }
  }
}

constexpr StoreTable kStores = {store_rows<float>, store_rows<Float16>, store_rows<BFloat16>};

void run(const TileKernels& kernels, ThreadPool& pool, std::span<const LinearCall> calls) {
  // A dry run of all rows by one weight measures what all calls take.
  int64_t num_rows = 0;
  for (const LinearCall& call : calls) num_rows += call.x.size(0);
  const LinearCall& first = calls.front();
  const Tensor x = Tensor::meta({num_rows, first.x.size(1)}, first.x.dtype());
  const Tensor y = Tensor::meta({num_rows, first.y.size(1)}, first.y.dtype());
  const LinearCall all = {x, first.weight, first.bias, y, first.x_scales};
  Workspace measure;
  linear_tiles(kernels, kStores, Stream::dry_run(), {&all, 1}, measure);
  Workspace scratch(measure.peak_size());
  linear_tiles(kernels, kStores, Stream(&pool), calls, scratch);
  EXPECT_EQ(scratch.peak_size(), measure.peak_size());
}

// Files of tiles are compiled for AVX2.
class LinearTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu_isa() < CpuIsa::kAvx2) GTEST_SKIP() << "no AVX2";
    if (cpu_isa() < CpuIsa::kAmx) emulator_.emplace();
  }

 private:
  std::optional<AmxEmulator> emulator_;
};

struct Case {
  int64_t rows, out_features, in_features;
};

// Around the sizes of tiles, blocks, chunks and units.
constexpr Case kCases[] = {
    {1, 1, 1},
    {1, 64, 64},
    {2, 63, 17},
    {5, 200, 96},
    {15, 70, 513},
    {16, 128, 512},
    {17, 65, 544},
    {31, 130, 33},
    {32, 64, 1031},
    {33, 97, 31},
    {47, 150, 257},
    {64, 320, 64},
    {255, 66, 65},
    {256, 64, 32},
    {257, 130, 100},
    {300, 520, 20},
    {3, 600, 300},
};

TEST_F(LinearTiles, BFloat16MatchesDouble) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    const Tensor x = random_matrix(c.rows, c.in_features, DType::kBFloat16, 3, 1);
    const Tensor rows = random_matrix(c.out_features, c.in_features, DType::kBFloat16, 0, 2);
    const Tensor bias = random_vector(c.out_features, DType::kFloat32, 3);
    const LinearWeight weight = pack_linear_weight(Stream(&pool), rows, WeightLayout::kPanels);
    const Tensor y = make_matrix(c.rows, c.out_features, DType::kFloat32, 2);
    const LinearCall call = {x, weight, bias, y};
    run(kAmxBFloat16, pool, {&call, 1});
    const std::vector<float> x_values = all_values(x), row_values = all_values(rows);
    for (int64_t t = 0; t < c.rows; ++t) {
      for (int64_t n = 0; n < c.out_features; ++n) {
        double exact = bias.data<float>()[n], magnitude = 1 + std::abs(exact);
        for (int64_t k = 0; k < c.in_features; ++k) {
          const double product =
              double{x_values[t * c.in_features + k]} * double{row_values[n * c.in_features + k]};
          exact += product;
          magnitude += std::abs(product);
        }
        const double tolerance = 0x1p-24 * (2 + std::sqrt(c.in_features) * 4) * magnitude;
        ASSERT_NEAR(value_at(y, t, n), exact, tolerance)
            << "[" << c.out_features << ", " << c.in_features << "] x " << c.rows << " rows at "
            << t << ", " << n;
      }
      // The gap behind a row.
      ASSERT_TRUE(std::isnan(y.data<float>()[t * y.stride(0) + c.out_features]));
    }
  }
}

Tensor random_codes(int64_t rows, int64_t columns, int seed) {
  const Tensor codes = Tensor::empty({rows, columns}, DType::kInt8);
  std::mt19937 random(seed);
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    codes.data<int8_t>()[i] = static_cast<int8_t>(random() >> 24);
  }
  return codes;
}

TEST_F(LinearTiles, Int8IsExact) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  for (const Case& c : kCases) {
    const Tensor x = random_codes(c.rows, c.in_features, 1);
    const Tensor rows = random_codes(c.out_features, c.in_features, 2);
    LinearWeight weight = make_quantized_weight(c.out_features,
                                                c.in_features,
                                                {QuantDType::kInt8, QuantType::kPerToken},
                                                WeightLayout::kPanels);
    pack_rows(stream, rows, 0, weight);
    const Tensor weight_scales = random_vector(c.out_features, DType::kFloat32, 3);
    const Tensor x_scales = random_vector(c.rows, DType::kFloat32, 4);
    pack_scales(weight_scales, 0, weight);
    const Tensor y = make_matrix(c.rows, c.out_features, DType::kFloat32, 1);
    const LinearCall call = {x, weight, {}, y, x_scales};
    run(kAmxInt8, pool, {&call, 1});
    for (int64_t t = 0; t < c.rows; ++t) {
      for (int64_t n = 0; n < c.out_features; ++n) {
        int64_t sum = 0;
        for (int64_t k = 0; k < c.in_features; ++k) {
          sum +=
              x.data<int8_t>()[t * c.in_features + k] * rows.data<int8_t>()[n * c.in_features + k];
        }
        const float expected =
            static_cast<float>(sum) * weight_scales.data<float>()[n] * x_scales.data<float>()[t];
        ASSERT_EQ(value_at(y, t, n), expected) << "[" << c.out_features << ", " << c.in_features
                                               << "] x " << c.rows << " rows at " << t << ", " << n;
      }
    }
  }
}

// Whatever the number of threads.
TEST_F(LinearTiles, RowIsTheSameInEveryBatch) {
  ThreadPool one(1), two(2), five(5);
  const Tensor all = random_matrix(300, 1031, DType::kBFloat16, 0, 1);
  const Tensor rows = random_matrix(150, 1031, DType::kBFloat16, 0, 2);
  const LinearWeight weight = pack_linear_weight(Stream(&two), rows, WeightLayout::kPanels);
  const auto multiplied = [&](ThreadPool& pool, int64_t first, int64_t count) {
    const Tensor y = make_matrix(count, 150, DType::kBFloat16, 0);
    const Tensor x = all.narrow(0, first, count);
    const LinearCall call = {x, weight, {}, y};
    run(kAmxBFloat16, pool, {&call, 1});
    return y;
  };
  const Tensor expected = multiplied(two, 0, 300);
  for (const int64_t batch : {1, 16, 17, 49, 299}) {
    const int64_t first = batch == 299 ? 1 : 40;
    for (ThreadPool* pool : {&one, &five}) {
      const Tensor y = multiplied(*pool, first, batch);
      for (int64_t t = 0; t < batch; ++t) {
        ASSERT_EQ(row_bytes(y, t), row_bytes(expected, first + t)) << t << " of " << batch;
      }
    }
  }
}

TEST_F(LinearTiles, ManyCallsGiveWhatEachGivesAlone) {
  ThreadPool pool(3);
  const Stream stream(&pool);
  std::vector<Tensor> x, y;
  std::vector<LinearWeight> weights;
  for (const int64_t rows : {1, 200, 3, 17, 300}) {
    const int seed = static_cast<int>(rows);
    x.push_back(random_matrix(rows, 300, DType::kBFloat16, 4, seed));
    y.push_back(make_matrix(rows, 150, DType::kFloat32, 0));
    weights.push_back(pack_linear_weight(
        stream, random_matrix(150, 300, DType::kBFloat16, 0, seed + 1), WeightLayout::kPanels));
  }
  std::vector<LinearCall> calls;
  const Tensor no_bias;
  for (size_t i = 0; i < x.size(); ++i) calls.push_back({x[i], weights[i], no_bias, y[i]});
  run(kAmxBFloat16, pool, calls);
  for (size_t i = 0; i < x.size(); ++i) {
    const Tensor alone = make_matrix(x[i].size(0), 150, DType::kFloat32, 0);
    const LinearCall call = {x[i], weights[i], no_bias, alone};
    run(kAmxBFloat16, pool, {&call, 1});
    ASSERT_EQ(std::memcmp(y[i].raw_data(), alone.raw_data(), alone.num_bytes()), 0) << i;
  }
}

}  // namespace
}  // namespace atom::ops
