#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/linear/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_test_matrices.h"

namespace atom::ops {
namespace {

TEST(LinearWeight, PackedSizeIsWhatIsAllocated) {
  ThreadPool pool(1);
  for (DType dtype : kDTypes) {
    for (WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
      const LinearWeight weight =
          pack_linear_weight(Stream(&pool), random_matrix(65, 7, dtype, 0, 1), layout);
      EXPECT_EQ(weight.data.num_bytes(), packed_size(65, 7, dtype, layout));
    }
  }
  EXPECT_EQ(packed_size(65, 7, DType::kBFloat16, WeightLayout::kPanels), 2 * 64 * 8 * 2);
  EXPECT_EQ(packed_size(64, 7, DType::kFloat32, WeightLayout::kPanels), 64 * 7 * 4);
  EXPECT_EQ(packed_size(65, 7, DType::kFloat16, WeightLayout::kRowMajor), 65 * 7 * 2);
}

TEST(LinearWeight, ImagesTakeWhatRowsTake) {
  const QuantFormat mxfp4 = {QuantDType::kFloat4E2M1, QuantType::kPer1x32, 1};
  const LinearWeight rows = quantized_weight_meta(128, 2880, mxfp4, WeightLayout::kRowMajor);
  const LinearWeight images = quantized_weight_meta(128, 2880, mxfp4, WeightLayout::kImages);
  EXPECT_EQ(images.data.shape(), Shape({2, 45, 2048}));
  EXPECT_EQ(images.scales.shape(), rows.scales.shape());
  EXPECT_EQ(images.data.num_bytes(), rows.data.num_bytes());
}

TEST(LinearWeight, RowsPackedInPiecesEqualRowsPackedAtOnce) {
  ThreadPool pool(2);
  for (DType dtype : kDTypes) {
    const Tensor rows = random_matrix(200, 77, dtype, 3, 1);
    for (WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
      const LinearWeight at_once = pack_linear_weight(Stream(&pool), rows, layout);
      const LinearWeight pieces = make_linear_weight(200, 77, dtype, layout);
      pack_rows(Stream(&pool), rows.narrow(0, 90, 110), 90, pieces);
      pack_rows(Stream(&pool), rows.narrow(0, 0, 10), 0, pieces);
      pack_rows(Stream(&pool), rows.narrow(0, 10, 80), 10, pieces);
      EXPECT_EQ(
          std::memcmp(at_once.data.raw_data(), pieces.data.raw_data(), pieces.data.num_bytes()), 0);
    }
  }
}

TEST(LinearWeight, GatherRowsReturnsTheRowsGiven) {
  ThreadPool pool(2);
  for (DType dtype : kDTypes) {
    for (int64_t in_features : {1, 2, 33, 130}) {
      const Tensor rows = random_matrix(131, in_features, dtype, 0, 1);
      const Tensor ids = Tensor::empty({5}, DType::kInt32);
      const int32_t wanted[] = {0, 130, 63, 64, 64};
      std::memcpy(ids.raw_data(), wanted, sizeof(wanted));
      for (WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
        const LinearWeight weight = pack_linear_weight(Stream(&pool), rows, layout);
        const Tensor out = make_matrix(5, in_features, dtype, 2);
        gather_rows(Stream(&pool), ids, weight, out);
        for (int t = 0; t < 5; ++t) EXPECT_EQ(row_bytes(out, t), row_bytes(rows, wanted[t]));
        const Tensor whole(out.raw_data(), dtype, {5, in_features + 2});
        EXPECT_TRUE(std::isnan(value_at(whole, 0, in_features)));
      }
    }
  }
}

TEST(LinearWeight, GatherRowsOfAPartGivesZerosForOtherIds) {
  ThreadPool pool(2);
  for (DType dtype : kDTypes) {
    const Tensor rows = random_matrix(70, 6, dtype, 0, 1);
    const Tensor ids = Tensor::empty({5}, DType::kInt32);
    const int32_t wanted[] = {100, 99, 169, 170, -1};
    std::memcpy(ids.raw_data(), wanted, sizeof(wanted));
    const Tensor zero = Tensor::zeros({1, 6}, dtype);
    for (WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
      const LinearWeight weight = pack_linear_weight(Stream(&pool), rows, layout);
      const Tensor out = make_matrix(5, 6, dtype, 0);
      gather_rows_of_part(Stream(&pool), ids, weight, 100, out);
      EXPECT_EQ(row_bytes(out, 0), row_bytes(rows, 0));
      EXPECT_EQ(row_bytes(out, 2), row_bytes(rows, 69));
      for (const int t : {1, 3, 4}) EXPECT_EQ(row_bytes(out, t), row_bytes(zero, 0)) << t;
    }
  }
}

TEST(LinearWeightDeathTest, IdsOutOfRange) {
  ThreadPool pool(1);
  const LinearWeight weight =
      pack_linear_weight(Stream(&pool), random_matrix(8, 6, DType::kFloat32, 0, 1));
  const Tensor out = Tensor::zeros({1, 6}, DType::kFloat32);
  const Tensor ids = Tensor::zeros({1}, DType::kInt32);
  ids.data<int32_t>()[0] = 8;
  EXPECT_DEATH(gather_rows(Stream(&pool), ids, weight, out), "id");
  ids.data<int32_t>()[0] = -1;
  EXPECT_DEATH(gather_rows(Stream(&pool), ids, weight, out), "id");
}

TEST(LinearWeight, QuantizedTakesAsMuchMemoryAsItsBits) {
  const auto bytes = [](const QuantFormat& format) {
    const LinearWeight weight = quantized_weight_meta(256, 1024, format);
    return std::pair(weight.data.num_bytes(), weight.scales.num_bytes());
  };
  EXPECT_EQ(bytes({QuantDType::kFloat4E2M1, QuantType::kPer1x32}),
            std::pair(int64_t{256 * 512}, int64_t{256 * 32}));
  EXPECT_EQ(bytes({QuantDType::kInt4, QuantType::kPer1x128}),
            std::pair(int64_t{256 * 512}, int64_t{256 * 8 * 4}));
  EXPECT_EQ(bytes({QuantDType::kInt8, QuantType::kPerToken}),
            std::pair(int64_t{256 * 1024}, int64_t{256 * 4}));
  EXPECT_EQ(bytes({QuantDType::kFloat8E4M3, QuantType::kPer128x128, 128}),
            std::pair(int64_t{256 * 1024}, int64_t{2 * 8 * 4}));
}

}  // namespace
}  // namespace atom::ops
