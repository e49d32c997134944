#include "loader/load_dummy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tensor/float4.h"

namespace atom {
namespace {

class Model : public Module {
 public:
  explicit Model(DType dtype)
      : weight(dtype, {301, 1001}), other(dtype, {301, 1001}), norm(dtype, {4096}) {
    register_parameter("proj.weight", &weight);
    register_parameter("other.weight", &other);
    register_parameter("norm.weight", &norm);
    register_parameter("quantized", &quantized);
    register_parameter("scales", &scales);
    register_parameter("proj.weight_scale", &exponents);
  }
  Status finish_load(const Stream&) override {
    finished = true;
    return {};
  }
  Parameter weight;
  Parameter other;
  Parameter norm;
  Parameter quantized{DType::kInt8, {1000}};
  Parameter scales{DType::kFloat8E4M3, {4096}};
  Parameter exponents{DType::kUInt8, {100, 32}};
  bool finished = false;
};

bool same_bytes(const Parameter& a, const Parameter& b) {
  return std::memcmp(a.data().raw_data(), b.data().raw_data(), a.num_bytes()) == 0;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments_of(const Parameter& parameter) {
  Tensor values = Tensor::empty(parameter.shape(), DType::kFloat32);
  copy_convert(parameter.data(), values);
  const int64_t count = values.num_elements();
  Moments moments;
  for (int64_t i = 0; i < count; ++i) moments.mean += values.data<float>()[i] / count;
  for (int64_t i = 0; i < count; ++i) {
    moments.deviation += std::pow(values.data<float>()[i] - moments.mean, 2) / count;
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

TEST(LoadDummy, RandomIsReproducibleWhateverTheThreads) {
  ThreadPool one(1);
  ThreadPool three(3);
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    Model a(dtype);
    Model b(dtype);
    Model c(dtype);
    ASSERT_TRUE(load_dummy(&a, DummyWeights::kRandom, 7, Stream(&one)).ok());
    ASSERT_TRUE(load_dummy(&b, DummyWeights::kRandom, 7, Stream(&three)).ok());
    ASSERT_TRUE(load_dummy(&c, DummyWeights::kRandom, 8, Stream(&three)).ok());
    EXPECT_TRUE(a.finished);
    EXPECT_TRUE(a.weight.is_loaded());
    EXPECT_TRUE(same_bytes(a.weight, b.weight));
    EXPECT_TRUE(same_bytes(a.norm, b.norm));
    EXPECT_TRUE(same_bytes(a.quantized, b.quantized));
    EXPECT_FALSE(same_bytes(a.weight, c.weight));
    EXPECT_FALSE(same_bytes(a.weight, a.other));
  }
}

TEST(LoadDummy, RandomWeightsAreSmallAndNormsAroundOne) {
  ThreadPool pool(2);
  Model model(DType::kFloat32);
  ASSERT_TRUE(load_dummy(&model, DummyWeights::kRandom, 0, Stream(&pool)).ok());
  const Moments weight = moments_of(model.weight);
  EXPECT_NEAR(weight.mean, 0, 2e-4);
  EXPECT_NEAR(weight.deviation, 0.02, 2e-4);
  const Moments norm = moments_of(model.norm);
  EXPECT_NEAR(norm.mean, 1, 2e-3);
  EXPECT_NEAR(norm.deviation, 0.02, 2e-3);
  const uint8_t* scales = static_cast<const uint8_t*>(model.scales.data().raw_data());
  for (int i = 0; i < 4096; ++i) EXPECT_NE(scales[i] & 0x7f, 0x7f);
}

TEST(LoadDummy, ScalesOfFourBitsAreOrdinaryPowersOfTwo) {
  ThreadPool pool(1);
  for (const DummyWeights kind : {DummyWeights::kRandom, DummyWeights::kZero}) {
    Model model(DType::kBFloat16);
    ASSERT_TRUE(load_dummy(&model, kind, 1, Stream(&pool)).ok());
    const uint8_t* exponents = model.exponents.data().data<uint8_t>();
    for (int64_t i = 0; i < model.exponents.shape().num_elements(); ++i) {
      ASSERT_EQ(e8m0_to_float(exponents[i]), 0x1p-7f);
    }
  }
}

TEST(LoadDummy, ZeroAndEmpty) {
  ThreadPool pool(2);
  Model zero(DType::kBFloat16);
  ASSERT_TRUE(load_dummy(&zero, DummyWeights::kZero, 0, Stream(&pool)).ok());
  EXPECT_EQ(moments_of(zero.weight).deviation, 0);
  EXPECT_EQ(moments_of(zero.norm).mean, 0);
  Model empty(DType::kBFloat16);
  ASSERT_TRUE(load_dummy(&empty, DummyWeights::kEmpty, 0, Stream(&pool)).ok());
  EXPECT_TRUE(empty.weight.data().has_data());
  EXPECT_TRUE(empty.weight.is_loaded());
}

}  // namespace
}  // namespace atom
