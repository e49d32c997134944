#include "ops/fused_moe/expert_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "ops/fused_moe/moe_test_layer.h"
#include "tensor/device_arena.h"

namespace atom::ops {
namespace {

using namespace moe_test;

std::vector<uint8_t> random_bytes(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

constexpr ImageMatrix kMatrices[] = {{64, 64}, {64, 192}, {192, 128}, {128, 2880}};

TEST(ExpertImages, PackingAndUnpackingGiveTheSame) {
  for (const ImageMatrix& matrix : kMatrices) {
    const std::vector<uint8_t> codes = random_bytes(matrix.num_rows * matrix.num_columns / 2, 1);
    std::vector<uint8_t> images(codes.size()), again(codes.size());
    matrix.pack_codes(codes.data(), images.data());
    EXPECT_NE(images, codes);
    matrix.unpack_codes(images.data(), again.data());
    EXPECT_EQ(again, codes);
  }
}

TEST(ExpertImages, APlaceIsOfOneRowAndBlock) {
  for (const int64_t columns : {64, 192}) {
    std::set<int64_t> places;
    constexpr int64_t kRows = 128;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t block = 0; block < columns / 32; ++block) {
        const int in_image = image_offset(static_cast<int>(row), static_cast<int>(block));
        EXPECT_LT(in_image, kImageSize);
        EXPECT_EQ(in_image % kImageVectorSize, 0);
        places.insert(image_index(row, block, columns) * kImageSize + in_image);
      }
    }
    EXPECT_EQ(std::ssize(places), kRows * columns / 32);
    EXPECT_EQ(*places.rbegin(), kRows * columns / 2 - kImageVectorSize);
  }
}

TEST(ExpertImages, CodesBecomeE4M3) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto rows = static_cast<uint32_t>(random());
    const uint32_t image = image_codes(rows);
    EXPECT_EQ(row_codes(image), rows);
    for (int byte = 0; byte < 4; ++byte) {
      // Sign, exponent and mantissa where E4M3 has them.
      const auto as_float8 = [](uint32_t code) { return (code & 8) << 4 | (code & 7) << 2; };
      const uint32_t codes = rows >> byte * 8 & 255;
      EXPECT_EQ(image_codes_even(image) >> byte * 8 & 255, as_float8(codes & 15));
      EXPECT_EQ(image_codes_odd(image) >> byte * 8 & 255, as_float8(codes >> 4));
    }
  }
}

// A tile's images are where its rows were, and an eight's 256 bytes of each.
TEST(ExpertImages, TilesStayWhereTheyAre) {
  constexpr int64_t kColumns = 192;
  for (int row = 0; row < 3 * kImageRows; ++row) {
    for (int block = 0; block < kColumns / 32; ++block) {
      const int64_t place =
          image_index(row, block, kColumns) * kImageSize + image_offset(row, block);
      EXPECT_EQ(place / (kImageRows * kColumns / 2), row / kImageRows);
      EXPECT_EQ(place % kImageSize / kEightSize, row % kImageRows / kEightRows);
    }
  }
}

// Eight threads at a time load 16 bytes each: from different banks.
void expect_different_banks(const std::vector<std::pair<int, int>>& rows_and_blocks) {
  ASSERT_EQ(rows_and_blocks.size(), 8u);
  std::set<int> banks;
  for (const auto& [row, block] : rows_and_blocks) {
    banks.insert(image_offset(row, block) % 128 / kImageVectorSize);
  }
  EXPECT_EQ(banks.size(), 8u) << "of row " << rows_and_blocks[0].first;
}

TEST(ExpertImages, WhatIsLoadedAtOnceIsInDifferentBanks) {
  for (int block = 0; block < 4; ++block) {
    for (int eight = 0; eight < kImageRows; eight += kEightRows) {
      std::vector<std::pair<int, int>> places;
      for (int i = 0; i < 8; ++i) places.emplace_back(eight + i, block);
      expect_different_banks(places);
    }
    for (int two = 0; two < kImageRows; two += 2 * kEightRows) {
      for (const int odd : {0, 1}) {
        std::vector<std::pair<int, int>> places;
        for (int i = 0; i < 8; ++i) places.emplace_back(two + 2 * i + odd, block);
        expect_different_banks(places);
      }
    }
  }
  for (int row = 0; row < kImageRows; ++row) {
    // Rows side by side, gates and ups by turns, which are 3 and 1 apart, four outputs, and eight
    // rows.
    const auto expect_of = [&](int other) {
      std::vector<std::pair<int, int>> places;
      for (int block = 0; block < 4; ++block) {
        places.emplace_back(row, block);
        places.emplace_back(other, block);
      }
      expect_different_banks(places);
    };
    if (row % 2 == 0) expect_of(row + 1);
    if (row % 4 == 0) expect_of(row + 3);
    if (row % 8 < 4) expect_of(row + 4);
    if (row % 16 < 8) expect_of(row + 8);
  }
}

TEST(ExpertImages, AreOfSizesThatDivide) {
  EXPECT_TRUE(divides_into_images(2880, 2880));
  EXPECT_TRUE(divides_into_images(64, 4032));
  EXPECT_FALSE(divides_into_images(2880, 1440));
  EXPECT_FALSE(divides_into_images(352, 64));
  EXPECT_FALSE(divides_into_images(4096, 64));
  EXPECT_FALSE(divides_into_images(0, 64));
}

TEST(ExpertImages, AreOfGpusAlone) {
  const GatedActivation silu;
  EXPECT_FALSE(keeps_expert_images({}, DType::kBFloat16, silu, 2880, 2880));
  const Device gpu = {DeviceType::kCuda, 0};
  EXPECT_FALSE(keeps_expert_images(gpu, DType::kFloat16, silu, 2880, 2880));
  EXPECT_FALSE(keeps_expert_images(gpu, DType::kBFloat16, silu, 2880, 1440));
}

// As a step's memory is planned: of tensors without memory, which are the CPU's.
TEST(ExpertImages, MemoryOfCallsIsPlannedAsOfThoseWithRows) {
  const auto is_of_gpu = [](const FusedMoeVariant& some) {
    return some.device == DeviceType::kCuda;
  };
  if (std::ranges::none_of(fused_moe_variants(), is_of_gpu)) GTEST_SKIP() << "no kernels for GPUs";
  constexpr int64_t kHidden = 2880, kSize = 2880, kExperts = 4, kChoices = 4;
  const auto peak_of = [&](WeightLayout layout, int64_t tokens) {
    const std::vector<LinearWeight> gate_up(
        kExperts, quantized_weight_meta(2 * kSize, kHidden, kFormats[3], layout));
    const std::vector<LinearWeight> down(
        kExperts, quantized_weight_meta(kHidden, kSize, kFormats[3], layout));
    const ExpertWeights experts{gate_up, down, {}, {}, {}, {}, {}};
    const Tensor x = Tensor::meta({tokens, kHidden}, DType::kBFloat16);
    Workspace measure;
    fused_moe(Stream::dry_run({DeviceType::kCuda, 0}),
              x,
              Tensor::meta({tokens, kChoices}, DType::kInt32),
              Tensor::meta({tokens, kChoices}, DType::kFloat32),
              experts,
              kActivations[4],
              Tensor::meta({tokens, kHidden}, DType::kBFloat16),
              measure);
    return measure.peak_size();
  };
  for (const int64_t tokens : {8, 64, 256}) {
    EXPECT_EQ(peak_of(WeightLayout::kImages, tokens), peak_of(WeightLayout::kRowMajor, tokens));
  }
}

TEST(ExpertImages, CodesBecomeThemOnTheGpuAsOnTheCpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  const auto queue = test_gpu()->create_queue();
  ThreadPool pool(1);
  const Stream stream(&pool, queue.get());
  for (const int64_t columns : {64, 192, 2880, 4032}) {
    const ImageMatrix matrix{3 * kImageRows, columns};
    const Tensor rows = Tensor::zeros({matrix.num_rows, columns / 2}, DType::kUInt8);
    std::ranges::copy(random_bytes(rows.num_elements(), static_cast<unsigned>(columns)),
                      rows.data<uint8_t>());
    const Tensor expected = Tensor::zeros(rows.shape(), DType::kUInt8);
    matrix.pack_codes(rows.data<uint8_t>(), expected.data<uint8_t>());
    const Tensor codes = resident_copy(stream, rows);
    turn_into_images(stream, codes, columns);
    const Tensor got = Tensor::zeros(rows.shape(), DType::kUInt8);
    queue->copy(got.raw_data(), codes.raw_data(), got.num_bytes());
    queue->synchronize();
    EXPECT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), got.num_bytes()), 0) << columns;
  }
}

}  // namespace
}  // namespace atom::ops
