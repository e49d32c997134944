#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/fill.h"
#include "tensor/tensor_check.h"
#include "tensor/workspace.h"

namespace atom {
namespace {

TEST(Numeric, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const BFloat16 brain{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(half))) {
      EXPECT_EQ(from_float<Float16>(to_float(half)).bits, bits);
    }
    if (!std::isnan(to_float(brain))) {
      EXPECT_EQ(from_float<BFloat16>(to_float(brain)).bits, bits);
    }
  }
}

TEST(Numeric, RoundsToNearestEven) {
  EXPECT_EQ(to_float(from_float<BFloat16>(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(to_float(from_float<BFloat16>(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(to_float(from_float<Float16>(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(to_float(from_float<Float16>(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(from_float<Float16>(65520.0f))));
  EXPECT_EQ(to_float(from_float<Float16>(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(from_float<Float16>(-0x1.8p-24f)), -0x1p-23f);
  EXPECT_TRUE(std::isnan(to_float(from_float<Float16>(std::nanf("")))));
  EXPECT_TRUE(std::isnan(to_float(from_float<BFloat16>(std::nanf("")))));
}

TEST(Tensor, NarrowAndViewShareStorage) {
  Tensor whole = Tensor::zeros({4, 6}, DType::kInt32);
  Tensor part = whole.narrow(1, 2, 3).narrow(0, 1, 2);
  EXPECT_EQ(part.shape(), (Shape{2, 3}));
  EXPECT_FALSE(part.is_contiguous());
  part.data<int32_t>()[part.stride(0)] = 7;
  EXPECT_EQ(whole.view({24}).data<int32_t>()[2 * 6 + 2], 7);
  EXPECT_EQ(whole.to_string(), "int32[4, 6]");
}

TEST(Tensor, CopyConvertsBetweenStridedTensors) {
  Tensor source = Tensor::zeros({2, 5}, DType::kFloat32);
  for (int i = 0; i < 10; ++i) source.data<float>()[i] = static_cast<float>(i) + 0.001f;
  Tensor target = Tensor::zeros({2, 3}, DType::kBFloat16);
  copy_convert(source.narrow(1, 2, 3), target);
  EXPECT_EQ(to_float(target.data<BFloat16>()[0]), 2.0f);
  EXPECT_EQ(to_float(target.data<BFloat16>()[5]), 9.0f);
}

TEST(Tensor, BytesOfRowsThatLieApartAreFilled) {
  ThreadPool pool(1);
  const Tensor ids = Tensor::zeros({4, 3}, DType::kInt32);
  fill_bytes(Stream(&pool), ids.narrow(1, 1, 2).narrow(0, 2, 2), 0xff);
  const int32_t expected[] = {0, 0, 0, 0, 0, 0, 0, -1, -1, 0, -1, -1};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(ids.data<int32_t>()[i], expected[i]) << i;
  fill_bytes(Stream(&pool), ids.narrow(0, 4, 0), 1);
  EXPECT_EQ(ids.data<int32_t>()[0], 0);
}

TEST(Tensor, DiscardedContentLeavesTheTensorUsable) {
  const Tensor large = Tensor::empty({8 << 20}, DType::kUInt8);
  std::memset(large.raw_data(), 7, large.num_bytes());
  discard_content(large.narrow(0, 1 << 20, 6 << 20));
  EXPECT_EQ(large.data<uint8_t>()[0], 7);
  EXPECT_EQ(large.data<uint8_t>()[3 << 20], 0);
  EXPECT_EQ(large.data<uint8_t>()[(8 << 20) - 1], 7);
  large.data<uint8_t>()[3 << 20] = 9;
  EXPECT_EQ(large.data<uint8_t>()[3 << 20], 9);
}

TEST(Workspace, MeasuringAndRealOnesAgree) {
  const auto use = [](Workspace& workspace) {
    Workspace::Scope outer(workspace);
    workspace.tensor({3}, DType::kBFloat16);
    {
      Workspace::Scope inner(workspace);
      workspace.tensor({100}, DType::kFloat32);
    }
    workspace.tensor({10}, DType::kFloat32);
  };
  Workspace measuring;
  use(measuring);
  EXPECT_EQ(measuring.peak_size(), 64 + 400);
  Workspace real(measuring.peak_size());
  use(real);
  EXPECT_EQ(real.peak_size(), measuring.peak_size());
}

TEST(TensorCheckDeathTest, NamesTheOperatorTensorAndDimension) {
  const Tensor x = Tensor::zeros({2, 3}, DType::kFloat32);
  const Tensor w = Tensor::zeros({4}, DType::kFloat32);
  TensorCheck check("rms_norm");
  check.tensor("x", x, {"T", "D"}, DType::kFloat32);
  EXPECT_EQ(check.size("D"), 3);
  EXPECT_DEATH(check.tensor("weight", w, {"D"}, DType::kFloat32),
               "\\[rms_norm\\] weight is float32\\[4\\]: dimension 0 \\(D\\) should be 3");
  EXPECT_DEATH(check.tensor("weight", w, {"N"}, DType::kBFloat16), "dtype should be bfloat16");
}

}  // namespace
}  // namespace atom
