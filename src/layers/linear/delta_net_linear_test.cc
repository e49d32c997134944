#include "layers/linear/delta_net_linear.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

constexpr GatedDeltaNetSizes kSizes = {
    .num_k_heads = 2, .num_v_heads = 6, .head_k_dim = 2, .head_v_dim = 3, .conv_kernel_size = 4};

// A column of weights, each of which says where it belongs: 100 * section + row.
float mark(int section, int64_t row) {
  return static_cast<float>(100 * section + row);
}

Tensor column(const std::vector<float>& values) {
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(values.size()), 1}, DType::kFloat32);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// Rows of `sections`, of so many rows for each key head, first by section, then by key head.
std::vector<float> in_sections(const std::vector<std::pair<int, int64_t>>& sections) {
  std::vector<float> values;
  for (const auto& [section, rows] : sections) {
    for (int64_t row = 0; row < rows * kSizes.num_k_heads; ++row) {
      values.push_back(mark(section, row));
    }
  }
  return values;
}

// The same by key head, then by section.
std::vector<float> in_groups(const std::vector<std::pair<int, int64_t>>& sections) {
  std::vector<float> values;
  for (int64_t head = 0; head < kSizes.num_k_heads; ++head) {
    for (const auto& [section, rows] : sections) {
      for (int64_t row = 0; row < rows; ++row) {
        values.push_back(mark(section, head * rows + row));
      }
    }
  }
  return values;
}

const std::vector<std::pair<int, int64_t>> kQkv = {{0, 2}, {1, 2}, {2, 9}};
const std::vector<std::pair<int, int64_t>> kQkvz = {{0, 2}, {1, 2}, {2, 9}, {3, 9}};
const std::vector<std::pair<int, int64_t>> kBa = {{4, 3}, {5, 3}};

std::vector<float> values_of(const Tensor& row) {
  Tensor copy = Tensor::empty(row.shape(), DType::kFloat32);
  copy_convert(row, copy);
  return {copy.data<float>(), copy.data<float>() + copy.num_elements()};
}

// What the projections make of the input 1.
struct Rows {
  std::vector<float> qkv, z, b, a;

  bool operator==(const Rows&) const = default;
};

Rows project(DeltaNetRows layout, int rank, int world) {
  ModelConfig config;
  config.hidden_size = 1;
  BuildContext build{config, DType::kFloat32, 8};
  build.parallel.tensor_parallel_rank = rank;
  build.parallel.tensor_parallel_size = world;
  QkvzParallelLinear qkvz(build, kSizes, layout);
  BaParallelLinear ba(build, kSizes, layout);
  ThreadPool pool(1);
  const Stream stream(&pool);
  qkvz.allocate_parameters(stream);
  ba.allocate_parameters(stream);
  Parameter& qkvz_weight = *qkvz.named_parameters().front().parameter;
  Parameter& ba_weight = *ba.named_parameters().front().parameter;
  if (layout == DeltaNetRows::kGroups) {
    EXPECT_TRUE(qkvz_weight.load(column(in_groups(kQkvz))).ok());
    EXPECT_TRUE(ba_weight.load(column(in_groups(kBa))).ok());
  } else {
    EXPECT_TRUE(qkvz_weight.load(column(in_sections(kQkv)), "qkv").ok());
    EXPECT_TRUE(qkvz_weight.load(column(in_sections({kQkvz.back()})), "z").ok());
    EXPECT_TRUE(ba_weight.load(column(in_sections({kBa.front()})), "b").ok());
    EXPECT_TRUE(ba_weight.load(column(in_sections({kBa.back()})), "a").ok());
  }
  EXPECT_TRUE(qkvz.finish_load(stream).ok());
  EXPECT_TRUE(ba.finish_load(stream).ok());
  Workspace workspace(1 << 16);
  const LayerStorage storage;
  const ForwardContext context{.stream = stream,
                               .workspace = workspace,
                               .token_ids = {},
                               .positions = {},
                               .batch = {},
                               .storage = storage};
  const Tensor one = Tensor::empty({1, 1}, DType::kFloat32);
  one.data<float>()[0] = 1;
  const auto [qkv, z] = qkvz.forward(one, context);
  const DeltaNetGates gates = ba.forward(one, context);
  return {values_of(qkv), values_of(z), values_of(gates.b), values_of(gates.a)};
}

TEST(DeltaNetLinear, GroupsOfKeyHeadsBecomeSections) {
  const Rows rows = project(DeltaNetRows::kGroups, 0, 1);
  EXPECT_EQ(rows.qkv, in_sections(kQkv));
  EXPECT_EQ(rows.z, in_sections({kQkvz.back()}));
  EXPECT_EQ(rows.b, in_sections({kBa.front()}));
  EXPECT_EQ(rows.a, in_sections({kBa.back()}));
  EXPECT_EQ(project(DeltaNetRows::kSections, 0, 1), rows);
}

TEST(DeltaNetLinear, ARankHasItsKeyHeadsAndTheirValueHeads) {
  const Rows second = project(DeltaNetRows::kGroups, 1, 2);
  EXPECT_EQ(second.qkv,
            (std::vector<float>{2, 3, 102, 103, 209, 210, 211, 212, 213, 214, 215, 216, 217}));
  EXPECT_EQ(second.b, (std::vector<float>{403, 404, 405}));
  EXPECT_EQ(second.a, (std::vector<float>{503, 504, 505}));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(project(DeltaNetRows::kGroups, rank, 2), project(DeltaNetRows::kSections, rank, 2));
  }
}

}  // namespace
}  // namespace atom
