#include "layers/attention/mla_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/head_linear/head_linear.h"
#include "ops/test_tensors.h"
#include "tensor/device_arena.h"
#include "tensor/float8.h"

namespace atom {
namespace {

constexpr int64_t kLatentTokens = 5, kScaledBlock = 128;
constexpr MlaSizes kLatentSizes = {
    .num_heads = 3, .rank = 256, .nope_dim = 128, .rope_dim = 64, .value_dim = 256};
constexpr int64_t kRowsOfHead = kLatentSizes.nope_dim + kLatentSizes.value_dim;
constexpr int64_t kProjectedRows = kLatentSizes.num_heads * kRowsOfHead;

// kv_b_proj in FP8 by blocks, and its values.
class LatentProjectionsInBlocks : public testing::Test {
 protected:
  LatentProjectionsInBlocks() {
    config_.quantization.method = "fp8";
    config_.quantization.groups = {{{ModulePattern::parse("Linear").value()},
                                    {QuantType::kPer128x128, QuantType::kPer1x128, false, false}}};
    const Tensor values =
        ops::random_tensor({kProjectedRows, kLatentSizes.rank}, DType::kFloat32, 1, 400.0f);
    codes_ = Tensor::empty(values.shape(), DType::kFloat8E4M3);
    scales_ = ops::random_tensor(
        {kProjectedRows / kScaledBlock, kLatentSizes.rank / kScaledBlock}, DType::kFloat32, 2);
    for (int64_t i = 0; i < scales_.num_elements(); ++i) {
      scales_.data<float>()[i] = 0.001f + 0.001f * std::abs(scales_.data<float>()[i]);
    }
    for (int64_t i = 0; i < values.num_elements(); ++i) {
      codes_.data<Float8E4M3>()[i] = from_float<Float8E4M3>(values.data<float>()[i]);
    }
  }

  double weight_at(int64_t row, int64_t column) const {
    return double{to_float(codes_.data<Float8E4M3>()[row * kLatentSizes.rank + column])} *
           scales_.data<float>()[row / kScaledBlock * (kLatentSizes.rank / kScaledBlock) +
                                 column / kScaledBlock];
  }

  void load(const Stream& stream, LatentProjections& projections) const {
    projections.allocate_parameters(stream);
    for (const NamedParameter& named : projections.named_parameters()) {
      const bool is_weight = named.name == "weight";
      ASSERT_TRUE(named.parameter->load(is_weight ? codes_ : scales_, "").ok()) << named.name;
    }
    const int64_t planned = projections.resident_bytes();
    const Status finished = projections.finish_load(stream);
    ASSERT_TRUE(finished.ok()) << finished.message();
    EXPECT_EQ(projections.resident_bytes(), planned);
  }

  // What each head's projection makes of its part of x.
  std::vector<double> multiply(const Stream& stream,
                               const Tensor& x,
                               const std::vector<ops::LinearWeight>& weights) const {
    const int64_t size = kLatentSizes.num_heads * weights.front().out_features;
    const Tensor y = resident_tensor(stream, {kLatentTokens, size}, x.dtype());
    const Tensor there = resident_copy(stream, x);
    Workspace measuring;
    ops::head_linear(Stream::dry_run(stream.device()), there, weights, y, measuring);
    Workspace scratch(stream, measuring.peak_size());
    ops::head_linear(stream, there, weights, y, scratch);
    const Tensor host = Tensor::empty(y.shape(), y.dtype());
    stream.queue().copy(host.raw_data(), y.raw_data(), y.num_bytes());
    stream.queue().synchronize();
    return ops::values_of(host);
  }

  ThreadPool pool_{2};
  ModelConfig config_;
  Tensor codes_, scales_;
};

TEST_F(LatentProjectionsInBlocks, AreThoseOfTheCheckpointOnAGpu) {
  if (ops::test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  const auto queue = ops::test_gpu()->create_queue();
  const Stream stream(&pool_, queue.get());
  BuildContext build{config_, DType::kBFloat16, 64, stream.device()};
  LatentProjections projections(build, kLatentSizes);
  load(stream, projections);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(projections.of_queries().front().is_quantized());
  const Tensor q = ops::random_tensor(
      {kLatentTokens, kLatentSizes.num_heads * kLatentSizes.nope_dim}, DType::kBFloat16, 3);
  const Tensor latents = ops::random_tensor(
      {kLatentTokens, kLatentSizes.num_heads * kLatentSizes.rank}, DType::kBFloat16, 4);
  const std::vector<double> in_q = ops::values_of(q), in_latents = ops::values_of(latents);
  const std::vector<double> of_q = multiply(stream, q, projections.of_queries());
  const std::vector<double> values = multiply(stream, latents, projections.of_values());
  const auto expect_near = [](double got, double expected) {
    ASSERT_NEAR(got, expected, 0x1.1p-8 * std::abs(expected) + 1e-3);
  };
  for (int64_t t = 0; t < kLatentTokens * kLatentSizes.num_heads; ++t) {
    const int64_t first_row = t % kLatentSizes.num_heads * kRowsOfHead;
    for (int64_t r = 0; r < kLatentSizes.rank; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < kLatentSizes.nope_dim; ++i) {
        sum += weight_at(first_row + i, r) * in_q[t * kLatentSizes.nope_dim + i];
      }
      expect_near(of_q[t * kLatentSizes.rank + r], sum);
      if (HasFatalFailure()) return;
    }
    for (int64_t n = 0; n < kLatentSizes.value_dim; ++n) {
      double sum = 0;
      for (int64_t r = 0; r < kLatentSizes.rank; ++r) {
        sum += weight_at(first_row + kLatentSizes.nope_dim + n, r) *
               in_latents[t * kLatentSizes.rank + r];
      }
      expect_near(values[t * kLatentSizes.value_dim + n], sum);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace atom
