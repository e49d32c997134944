#include "ops/head_linear/head_linear.h"

#include <gtest/gtest.h>

#include "ops/test_tensors.h"

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
