#include "layers/activation.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

const ActivationFormat kRows = {};
const ActivationFormat kPerToken = {.rows = false, .codes = QuantType::kPerToken};

ActivationFormat with_scale(const Tensor& scale) {
  return {.rows = false, .codes = QuantType::kPerTensor, .static_scale = scale};
}

TEST(ActivationFormat, AUnionHasWhatBothRead) {
  EXPECT_FALSE(unite(kRows, kRows).has_codes());
  EXPECT_TRUE(unite(kRows, kRows).rows);
  for (const ActivationFormat& both : {unite(kRows, kPerToken), unite(kPerToken, kRows)}) {
    EXPECT_TRUE(both.rows);
    EXPECT_EQ(both.codes, QuantType::kPerToken);
  }
  EXPECT_FALSE(unite(kPerToken, kPerToken).rows);
}

// Codes have one scale: whoever has another one quantizes the rows.
TEST(ActivationFormat, CodesWithAScaleOfTheirOwnAreNotShared) {
  const Tensor scale = Tensor::zeros({1}, DType::kFloat32);
  const Tensor other = Tensor::zeros({1}, DType::kFloat32);
  const ActivationFormat both = unite(with_scale(scale), with_scale(other));
  EXPECT_TRUE(both.rows);
  Workspace workspace(4096);
  const ops::QuantizedRows codes = make_codes(both, 2, 64, workspace);
  EXPECT_TRUE(with_scale(scale).takes(codes));
  EXPECT_FALSE(with_scale(other).takes(codes));
  EXPECT_FALSE(kPerToken.takes(codes));
  EXPECT_TRUE(unite(kPerToken, with_scale(scale)).rows);
}

TEST(ActivationFormat, TakesWhatItAskedFor) {
  Workspace workspace(4096);
  const ops::QuantizedRows codes = make_codes(kPerToken, 2, 64, workspace);
  EXPECT_EQ(codes.values.shape(), Shape({2, 64}));
  EXPECT_EQ(codes.scales.shape(), Shape({2}));
  EXPECT_TRUE(kPerToken.takes(codes));
  EXPECT_FALSE(kRows.takes(codes));
  EXPECT_FALSE(kPerToken.takes({}));
}

}  // namespace
}  // namespace atom
