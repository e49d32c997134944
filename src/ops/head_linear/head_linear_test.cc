#include "ops/head_linear/head_linear.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/head_linear/head_linear_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// Every head's part of x and y is wider than its projection reads and writes.
TEST(HeadLinear, EveryHeadHasItsProjection) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  constexpr int64_t kHeads = 3, kIn = 24, kOut = 70, kInPitch = 29, kOutPitch = 71;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<Tensor> matrices;
    std::vector<LinearWeight> weights;
    for (uint64_t head = 0; head < kHeads; ++head) {
      matrices.push_back(random_tensor({kOut, kIn}, dtype, 10 + head));
      weights.push_back(pack_linear_weight(stream, matrices.back()));
    }
    for (const int64_t num_rows : {0, 1, 9}) {
      const Tensor x = random_tensor({num_rows, kHeads * kInPitch}, dtype, 1);
      const Tensor y = random_tensor({num_rows, kHeads * kOutPitch}, dtype, 2);
      std::vector<double> expected = values_of(y);
      const std::vector<double> rows = values_of(x);
      for (int64_t t = 0; t < num_rows; ++t) {
        for (int64_t head = 0; head < kHeads; ++head) {
          const std::vector<double> w = values_of(matrices[head]);
          const double* part = rows.data() + (t * kHeads + head) * kInPitch;
          for (int64_t n = 0; n < kOut; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < kIn; ++k) sum += w[n * kIn + k] * part[k];
            expected[(t * kHeads + head) * kOutPitch + n] = sum;
          }
        }
      }
      Workspace scratch(1 << 20);
      head_linear(stream, x, weights, y, scratch);
      const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 1.01 * half_ulp(dtype);
      expect_close(y, expected, tolerance, 1e-6, dtype_name(dtype));
    }
  }
}

// On a GPU, in which weights stay row-major: by every variant, and a token's bits are its own.
TEST(HeadLinear, EveryVariantOfAGpuHasThem) {
  ThreadPool pool(2);
  struct Case {
    int64_t heads, in, out, in_pitch, out_pitch;
  };
  constexpr Case kCases[] = {
      {3, 128, 512, 192, 512}, {5, 512, 128, 512, 136}, {2, 192, 64, 256, 64}, {3, 24, 70, 29, 71}};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : kCases) {
      const Tensor matrices = random_tensor({c.heads * c.out, c.in}, dtype, 10);
      for (const int64_t num_rows : {1, 8, 20, 50, 150}) {
        const Tensor x = random_tensor({num_rows, c.heads * c.in_pitch}, dtype, 1);
        const Tensor y = random_tensor({num_rows, c.heads * c.out_pitch}, dtype, 2);
        std::vector<double> expected = values_of(y);
        const std::vector<double> rows = values_of(x), w = values_of(matrices);
        for (int64_t i = 0; i < num_rows * c.heads; ++i) {
          const double* part = rows.data() + i * c.in_pitch;
          for (int64_t n = 0; n < c.out; ++n) {
            const double* row = w.data() + (i % c.heads * c.out + n) * c.in;
            expected[i * c.out_pitch + n] = std::inner_product(row, row + c.in, part, 0.0);
          }
        }
        for (const char* variant : {"sm90", "linear"}) {
          if (test_gpu() == nullptr) continue;
          const Tensor got = copy_of(y);
          const bool ran = run_variant(variant, pool, {matrices, x, got}, [&](const Placed& at) {
            std::vector<LinearWeight> weights;
            for (int64_t head = 0; head < c.heads; ++head) {
              LinearWeight weight;
              weight.data = at(matrices).narrow(0, head * c.out, c.out);
              weight.out_features = c.out;
              weight.in_features = c.in;
              weights.push_back(weight);
            }
            Workspace measuring;
            const Stream dry_run = Stream::dry_run(at.stream().device());
            if (!head_linear_by(variant, dry_run, at(x), weights, at(got), measuring)) return false;
            Workspace scratch(at.stream(), measuring.peak_size());
            return head_linear_by(variant, at.stream(), at(x), weights, at(got), scratch);
          });
          if (!ran) continue;
          const std::string what = std::string(variant) + " " + x.to_string();
          expect_close(got, expected, 1.01 * half_ulp(dtype), 2e-5, what);
        }
      }
    }
  }
}

Tensor random_codes(const Shape& shape) {
  const Tensor values = random_tensor(shape, DType::kFloat32, 10, 400.0f);
  const Tensor codes = Tensor::zeros(shape, DType::kFloat8E4M3);
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    codes.data<Float8E4M3>()[i] = from_float<Float8E4M3>(values.data<float>()[i]);
  }
  return codes;
}

// Weights in FP8 by blocks of 128 x 128, and x in bfloat16 as it is.
TEST(HeadLinear, WeightsInFloat8HaveTheirScales) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  struct Case {
    int64_t heads, in, out, in_pitch, out_pitch;
  };
  constexpr int64_t kBlock = 128;
  int num_runs = 0;
  for (const Case& c :
       {Case{3, 128, 512, 192, 512}, {5, 512, 128, 512, 136}, {2, 768, 64, 768, 64}}) {
    const int64_t blocks = (c.out + kBlock - 1) / kBlock, groups = c.in / kBlock;
    const Tensor codes = random_codes({c.heads * c.out, c.in});
    const Tensor scales = random_tensor({c.heads * blocks, groups}, DType::kFloat32, 11);
    for (const int64_t num_rows : {1, 8, 20, 50, 150}) {
      const Tensor x = random_tensor({num_rows, c.heads * c.in_pitch}, DType::kBFloat16, 1);
      const Tensor y = random_tensor({num_rows, c.heads * c.out_pitch}, DType::kBFloat16, 2);
      std::vector<double> expected = values_of(y);
      const std::vector<double> rows = values_of(x), s = values_of(scales);
      const auto* w = codes.data<Float8E4M3>();
      for (int64_t i = 0; i < num_rows * c.heads; ++i) {
        const int64_t head = i % c.heads;
        for (int64_t n = 0; n < c.out; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < c.in; ++k) {
            sum += double{to_float(w[(head * c.out + n) * c.in + k])} * rows[i * c.in_pitch + k] *
                   s[(head * blocks + n / kBlock) * groups + k / kBlock];
          }
          expected[i * c.out_pitch + n] = sum;
        }
      }
      for (const char* variant : {"sm90-float8", "linear"}) {
        const Tensor got = copy_of(y);
        const bool ran = run_variant(variant, pool, {codes, scales, x, got}, [&](const Placed& at) {
          std::vector<LinearWeight> weights;
          for (int64_t head = 0; head < c.heads; ++head) {
            LinearWeight weight;
            weight.data = at(codes).narrow(0, head * c.out, c.out);
            weight.scales = at(scales).narrow(0, head * blocks, blocks);
            weight.group_size = weight.scale_rows = kBlock;
            weight.out_features = c.out;
            weight.in_features = c.in;
            weights.push_back(weight);
          }
          Workspace measuring;
          const Stream dry_run = Stream::dry_run(at.stream().device());
          if (!head_linear_by(variant, dry_run, at(x), weights, at(got), measuring)) {
            return false;
          }
          Workspace scratch(at.stream(), measuring.peak_size());
          return head_linear_by(variant, at.stream(), at(x), weights, at(got), scratch);
        });
        if (!ran) continue;
        ++num_runs;
        const std::string what = std::string(variant) + " " + x.to_string();
        expect_close(got, expected, 1.01 * half_ulp(DType::kBFloat16), 2e-5, what);
      }
    }
  }
  EXPECT_GE(num_runs, 15);
}

TEST(HeadLinearDeathTest, RefusesRowsThatHeadsDoNotDivide) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const Tensor matrix = random_tensor({4, 4}, DType::kFloat32, 1);
  const std::vector<LinearWeight> weights(2, pack_linear_weight(stream, matrix));
  const Tensor x = Tensor::zeros({1, 9}, DType::kFloat32),
               y = Tensor::zeros({1, 8}, DType::kFloat32);
  Workspace scratch(1 << 16);
  EXPECT_DEATH(head_linear(stream, x, weights, y, scratch), "num_heads == 0");
}

}  // namespace
}  // namespace atom::ops
