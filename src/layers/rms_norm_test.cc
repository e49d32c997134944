#include "layers/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/test_tensors.h"

namespace atom {
namespace {

constexpr int64_t kTokens = 3;
constexpr int64_t kSize = 64;
const ActivationFormat kCodes = {.rows = false, .codes = QuantType::kPerToken};

std::vector<uint8_t> bytes_of(const Tensor& codes) {
  const auto* data = static_cast<const uint8_t*>(codes.raw_data());
  return {data, data + codes.num_bytes()};
}

class RMSNormLayer : public testing::Test {
 protected:
  RMSNormLayer() { config_.rms_norm_eps = 1e-5f; }

  std::unique_ptr<RMSNorm> load(NormWeight kind) {
    auto norm = std::make_unique<RMSNorm>(build_, kSize, kind);
    norm->allocate_parameters(stream_);
    EXPECT_TRUE(norm->named_parameters()[0].parameter->load(weight_).ok());
    EXPECT_TRUE(norm->finish_load(stream_).ok());
    return norm;
  }

  ThreadPool pool_{2};
  Stream stream_{&pool_};
  Workspace workspace_{1 << 16};
  LayerStorage storage_;
  ForwardContext context_{stream_, workspace_, Tensor(), Tensor(), {}, storage_};
  ModelConfig config_;
  BuildContext build_{config_, DType::kFloat32, 64};
  Tensor weight_ = ops::random_tensor({kSize}, DType::kFloat32, 1);
  Tensor x_ = ops::random_tensor({kTokens, kSize}, DType::kFloat32, 2);
};

TEST_F(RMSNormLayer, AZeroCenteredWeightIsCountedFromOne) {
  for (const NormWeight kind : {NormWeight::kModelDtype, NormWeight::kZeroCentered}) {
    const std::unique_ptr<RMSNorm> norm = load(kind);
    const int64_t planned = RMSNorm(build_, kSize, kind).resident_bytes();
    EXPECT_EQ(norm->resident_bytes(), planned);
    const Tensor y = ops::copy_of(x_);
    norm->forward(y, context_);
    const float offset = kind == NormWeight::kZeroCentered ? 1.0f : 0.0f;
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* row = x_.data<float>() + t * kSize;
      double squares = 0;
      for (int64_t k = 0; k < kSize; ++k) squares += double{row[k]} * row[k];
      const double factor = 1 / std::sqrt(squares / kSize + 1e-5);
      for (int64_t k = 0; k < kSize; ++k) {
        ASSERT_NEAR(y.data<float>()[t * kSize + k],
                    row[k] * factor * (weight_.data<float>()[k] + offset),
                    1e-5);
      }
    }
  }
}

// Rows, codes, or both: each is what it is alone.
TEST_F(RMSNormLayer, LeavesTheFormsThatAreAskedFor) {
  const std::unique_ptr<RMSNorm> norm = load(NormWeight::kModelDtype);
  const Tensor residual = ops::random_tensor({kTokens, kSize}, DType::kFloat32, 3);
  const auto run = [&](const ActivationFormat& format) {
    return norm->forward_add(ops::copy_of(x_), ops::copy_of(residual), format, context_);
  };
  const Activation rows = run({}), codes = run(kCodes), both = run(unite({}, kCodes));
  EXPECT_FALSE(rows.has_codes());
  EXPECT_FALSE(codes.rows.defined());
  EXPECT_EQ(ops::values_of(both.rows), ops::values_of(rows.rows));
  EXPECT_EQ(ops::values_of(both.codes.scales), ops::values_of(codes.codes.scales));
  EXPECT_EQ(bytes_of(both.codes.values), bytes_of(codes.codes.values));
}

TEST_F(RMSNormLayer, LeavesRowsWhereTheFusionIsOff) {
  build_.fusions.rms_norm_quant = false;
  const Activation y = load(NormWeight::kModelDtype)->forward(x_, kCodes, context_);
  EXPECT_TRUE(y.rows.defined());
  EXPECT_FALSE(y.has_codes());
}

}  // namespace
}  // namespace atom
