#include "nn/parameter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace atom {
namespace {

// 0, 1, 2, ... in row-major order, plus `first`.
Tensor counting(const Shape& shape, DType dtype = DType::kFloat32, float first = 0) {
  Tensor values = Tensor::empty(shape, DType::kFloat32);
  std::iota(values.data<float>(), values.data<float>() + values.num_elements(), first);
  Tensor tensor = Tensor::empty(shape, dtype);
  copy_convert(values, tensor);
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  Tensor values = Tensor::empty(tensor.shape(), DType::kFloat32);
  copy_convert(tensor, values);
  return {values.data<float>(), values.data<float>() + values.num_elements()};
}

TEST(Parameter, LoadsAWholeTensor) {
  Parameter parameter(DType::kFloat32, {2, 3});
  EXPECT_FALSE(parameter.data().has_data());
  EXPECT_EQ(parameter.num_bytes(), 24);
  parameter.allocate();
  EXPECT_FALSE(parameter.is_loaded());
  EXPECT_EQ(parameter.missing_slices(), std::vector<std::string>{""});
  ASSERT_TRUE(parameter.load(counting({2, 3})).ok());
  EXPECT_TRUE(parameter.is_loaded());
  EXPECT_EQ(values_of(parameter.data()), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(Parameter, ConvertsBetweenFloatTypes) {
  const std::vector<float> expected = {0, 1, 2, 3};
  for (DType from : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (DType to : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      Parameter parameter(to, {4});
      parameter.allocate();
      ASSERT_TRUE(parameter.load(counting({4}, from)).ok());
      EXPECT_EQ(parameter.data().dtype(), to);
      EXPECT_EQ(values_of(parameter.data()), expected);
    }
  }
}

TEST(Parameter, RefusesOtherDtypes) {
  Parameter parameter(DType::kBFloat16, {4});
  parameter.allocate();
  const Status status = parameter.load(Tensor::zeros({4}, DType::kInt8));
  EXPECT_EQ(status.message(), "found dtype int8, which does not convert to bfloat16");
  EXPECT_FALSE(parameter.is_loaded());

  Parameter quantized(DType::kInt8, {4});
  quantized.allocate();
  EXPECT_FALSE(quantized.load(counting({4})).ok());
  EXPECT_TRUE(quantized.load(Tensor::zeros({4}, DType::kInt8)).ok());
}

TEST(Parameter, PacksSlicesAlongRows) {
  Parameter qkv(DType::kFloat32, {{"q", 2, {}}, {"k", 1, {}}, {"v", 1, {}}}, {2});
  EXPECT_EQ(qkv.shape(), (Shape{4, 2}));
  qkv.allocate();
  ASSERT_TRUE(qkv.load(counting({1, 2}, DType::kFloat32, 20), "v").ok());
  ASSERT_TRUE(qkv.load(counting({2, 2}), "q").ok());
  EXPECT_EQ(qkv.missing_slices(), std::vector<std::string>{"k"});
  ASSERT_TRUE(qkv.load(counting({1, 2}, DType::kFloat32, 10), "k").ok());
  EXPECT_TRUE(qkv.is_loaded());
  EXPECT_EQ(values_of(qkv.data()), (std::vector<float>{0, 1, 2, 3, 10, 11, 20, 21}));
}

// Two heads, each of which has a row of the first section and two of the second.
TEST(Parameter, PutsInterleavedRowsInOrder) {
  const RowSlice rows{"", 6, {}, {{0, 1}, {3, 1}, {1, 2}, {4, 2}}};
  Parameter parameter(DType::kFloat32, {rows}, {1});
  parameter.allocate();
  ASSERT_TRUE(parameter.load(counting({6, 1})).ok());
  EXPECT_EQ(values_of(parameter.data()), (std::vector<float>{0, 3, 1, 2, 4, 5}));

  Parameter second(DType::kFloat32, {{"", 6, {1, 2}, {{3, 1}, {4, 2}}}}, {1});
  second.allocate();
  ASSERT_TRUE(second.load(counting({6, 1})).ok());
  EXPECT_EQ(values_of(second.data()), (std::vector<float>{3, 4, 5}));
}

TEST(Parameter, PacksBiases) {
  Parameter bias(DType::kFloat32, {{"gate", 2, {}}, {"up", 2, {}}}, {});
  bias.allocate();
  ASSERT_TRUE(bias.load(counting({2}), "gate").ok());
  ASSERT_TRUE(bias.load(counting({2}, DType::kFloat32, 5), "up").ok());
  EXPECT_EQ(values_of(bias.data()), (std::vector<float>{0, 1, 5, 6}));
}

TEST(Parameter, NamesShapesThatDoNotMatch) {
  Parameter qkv(DType::kFloat32, {{"q", 4, {}}, {"k", 2, {}}}, {3});
  qkv.allocate();
  EXPECT_EQ(qkv.load(counting({2, 3}), "q").message(),
            "shard 'q': found shape [2, 3], expected [4, 3]");
  EXPECT_EQ(qkv.load(counting({2, 3}), "x").message(),
            "shard 'x': no such shard; expected 'q', 'k'");
  EXPECT_FALSE(qkv.load(counting({6, 3})).ok());
  EXPECT_FALSE(qkv.load(counting({12}), "q").ok());
}

TEST(Parameter, RefusesASecondLoad) {
  Parameter parameter(DType::kFloat32, {2});
  parameter.allocate();
  ASSERT_TRUE(parameter.load(counting({2})).ok());
  EXPECT_EQ(parameter.load(counting({2})).message(), "loaded twice");
}

TEST(Parameter, KeepsItsColumnsOfARowParallelWeight) {
  Parameter parameter(DType::kFloat32, {2, 4}, 1, {.rank = 1, .world = 2});
  EXPECT_EQ(parameter.shape(), (Shape{2, 2}));
  parameter.allocate();
  ASSERT_TRUE(parameter.load(counting({2, 4})).ok());
  EXPECT_EQ(values_of(parameter.data()), (std::vector<float>{2, 3, 6, 7}));
}

TEST(Parameter, KeepsItsRowsOfAColumnParallelWeight) {
  Parameter parameter(DType::kBFloat16, {4, 2}, 0, {.rank = 1, .world = 2});
  parameter.allocate();
  ASSERT_TRUE(parameter.load(counting({4, 2})).ok());
  EXPECT_EQ(values_of(parameter.data()), (std::vector<float>{4, 5, 6, 7}));
}

// Four ranks share two KV heads: ranks 2 and 3 both hold the second.
TEST(Parameter, SplitsEachSliceByItself) {
  const ShardPart kv{.rank = 3 / 2, .world = 2};
  Parameter qkv(
      DType::kFloat32, {{"q", 4, {.rank = 3, .world = 4}}, {"k", 2, kv}, {"v", 2, kv}}, {1});
  EXPECT_EQ(qkv.shape(), (Shape{3, 1}));
  qkv.allocate();
  ASSERT_TRUE(qkv.load(counting({4, 1}), "q").ok());
  ASSERT_TRUE(qkv.load(counting({2, 1}, DType::kFloat32, 10), "k").ok());
  ASSERT_TRUE(qkv.load(counting({2, 1}, DType::kFloat32, 20), "v").ok());
  EXPECT_EQ(values_of(qkv.data()), (std::vector<float>{3, 11, 21}));
}

// Gate and up of two experts, [2, 2 * 2, 3] of all ranks together, of which each of two ranks holds
// half the rows of either. Stored expert by expert, or all in one tensor.
std::vector<ParameterSlice> slices_of_experts(ShardPart part) {
  std::vector<ParameterSlice> slices;
  for (int64_t expert = 0; expert < 2; ++expert) {
    for (int64_t half = 0; half < 2; ++half) {
      const Box source = part_of({2, 3}, 0, part);
      slices.push_back({std::to_string(expert) + (half == 0 ? ".gate" : ".up"),
                        {2, 3},
                        {{source, {{expert, half, 0}, {1, 1, 3}}}}});
    }
  }
  return slices;
}

std::vector<ParameterSlice> all_experts_in_one(ShardPart part) {
  ParameterSlice slice{"", {2, 4, 3}, {}};
  for (int64_t half = 0; half < 2; ++half) {
    slice.boxes.push_back({{{0, 2 * half + part.rank, 0}, {2, 1, 3}}, {{0, half, 0}, {2, 1, 3}}});
  }
  return {slice};
}

const ShardPart kSecondOfTwo{.rank = 1, .world = 2};

TEST(Parameter, SlicesAreBoxesOfAnyRank) {
  Parameter experts(DType::kFloat32, {2, 2, 3}, slices_of_experts(kSecondOfTwo));
  experts.allocate();
  ASSERT_TRUE(experts.load(counting({2, 3}, DType::kFloat32, 10), "0.up").ok());
  ASSERT_TRUE(experts.load(counting({2, 3}, DType::kFloat32, 30), "1.up").ok());
  ASSERT_TRUE(experts.load(counting({2, 3}, DType::kFloat32, 20), "1.gate").ok());
  EXPECT_EQ(experts.missing_slices(), std::vector<std::string>{"0.gate"});
  ASSERT_TRUE(experts.load(counting({2, 3}, DType::kFloat32, 0), "0.gate").ok());
  EXPECT_TRUE(experts.is_loaded());
  EXPECT_EQ(values_of(experts.data()),
            (std::vector<float>{3, 4, 5, 13, 14, 15, 23, 24, 25, 33, 34, 35}));
}

TEST(Parameter, OneTensorMayFillSeveralBoxes) {
  Parameter experts(DType::kFloat32, {2, 2, 3}, slices_of_experts(kSecondOfTwo));
  experts.add_alternative(all_experts_in_one(kSecondOfTwo));
  experts.allocate();
  EXPECT_EQ(experts.missing_slices().size(), 4u);
  ASSERT_TRUE(experts.load(counting({2, 4, 3})).ok());
  EXPECT_TRUE(experts.is_loaded());
  EXPECT_EQ(values_of(experts.data()),
            (std::vector<float>{3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23}));
}

TEST(Parameter, AlternativesDoNotMix) {
  Parameter experts(DType::kFloat32, {2, 2, 3}, slices_of_experts(kSecondOfTwo));
  experts.add_alternative(all_experts_in_one(kSecondOfTwo));
  ASSERT_TRUE(experts.claim({2, 3}, DType::kFloat32, "1.up").ok());
  EXPECT_EQ(experts.claim({2, 4, 3}, DType::kFloat32, "").status().message(),
            "the checkpoint stores the same values in other tensors too");
  EXPECT_EQ(experts.missing_slices(), (std::vector<std::string>{"0.gate", "0.up", "1.gate"}));
}

TEST(Parameter, SlicesOfOtherRanksAreCheckedAndNotPlaced) {
  // This rank holds the second of two experts.
  std::vector<ParameterSlice> slices;
  slices.push_back({"0", {2, 3}, {}});
  slices.push_back({"1", {2, 3}, {{whole({2, 3}), {{0, 0, 0}, {1, 2, 3}}}}});
  Parameter experts(DType::kFloat32, {1, 2, 3}, std::move(slices));
  EXPECT_FALSE(experts.claim({3, 3}, DType::kFloat32, "0").ok());
  const Result<int> other = experts.claim({2, 3}, DType::kFloat32, "0");
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(experts.is_of_this_rank(*other));
  EXPECT_TRUE(experts.place(counting({2, 3}), *other).empty());
  EXPECT_FALSE(experts.claim({2, 3}, DType::kFloat32, "0").ok());
  EXPECT_EQ(experts.missing_slices(), std::vector<std::string>{"1"});
}

TEST(ParameterDeathTest, BoxesThatDoNotCoverAreOurMistake) {
  std::vector<ParameterSlice> slices = slices_of_experts(kSecondOfTwo);
  slices.pop_back();
  EXPECT_DEATH(Parameter(DType::kFloat32, {2, 2, 3}, slices), "CHECK");
  slices = slices_of_experts(kSecondOfTwo);
  slices.back().boxes[0].target.begin[0] = 2;
  EXPECT_DEATH(Parameter(DType::kFloat32, {2, 2, 3}, slices), "CHECK");
}

TEST(Parameter, WhatIsComputedIsNeitherLoadedNorMissing) {
  Parameter scales(DType::kFloat32, {4, 1});
  scales.set_computed();
  EXPECT_TRUE(scales.is_loaded());
  EXPECT_EQ(scales.claim({4, 1}, DType::kFloat32, "").status().message(),
            "is made from others, not loaded");
}

class NoEncoder : public RowEncoder {
 public:
  DType source_dtype() const override { return DType::kBFloat16; }
  void encode(const Stream&, const Tensor&, int64_t) override {}
};

TEST(Parameter, EncodedRowsComeFromAnyFloatDtypeAndKnowTheirPlace) {
  NoEncoder encoder;
  Parameter gate_up(DType::kFloat8E4M3, {{"gate", 3, {}}, {"up", 2, {}}}, {4});
  EXPECT_FALSE(gate_up.claim({2, 4}, DType::kFloat32, "up").ok());
  gate_up.set_encoder(&encoder);
  EXPECT_FALSE(gate_up.claim({2, 4}, DType::kInt8, "up").ok());
  const Result<int> up = gate_up.claim({2, 4}, DType::kFloat32, "up");
  ASSERT_TRUE(up.ok());
  const std::vector<Parameter::Placement> placements = gate_up.place(counting({2, 4}), *up);
  ASSERT_EQ(placements.size(), 1u);
  const Parameter::Placement& placement = placements[0];
  EXPECT_EQ(placement.encoder, &encoder);
  EXPECT_EQ(placement.first_row, 3);
  EXPECT_EQ(placement.target.shape(), (Shape{2, 4}));
}

TEST(Parameter, ReleaseKeepsTheShape) {
  Parameter parameter(DType::kFloat32, {2, 3});
  parameter.allocate();
  parameter.release();
  EXPECT_FALSE(parameter.data().has_data());
  EXPECT_EQ(parameter.shape(), (Shape{2, 3}));
}

}  // namespace
}  // namespace atom
