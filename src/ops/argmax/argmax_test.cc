#include "ops/argmax/argmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "ops/argmax/argmax_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

// The choices of every variant must be the same.
std::vector<int32_t> choices(const char* variant, const Tensor& logits, int64_t num_ids) {
  ThreadPool pool(2);
  const Tensor out = Tensor::zeros({logits.size(0)}, DType::kInt32);
  const bool ran = run_variant(variant, pool, {logits, out}, [&](const Placed& at) {
    Workspace scratch(at.stream(), 1 << 20);
    return argmax_by(variant, at.stream(), at(logits), num_ids, at(out), scratch);
  });
  if (!ran) return {};
  return {out.data<int32_t>(), out.data<int32_t>() + out.num_elements()};
}

TEST(Argmax, TakesTheLowestOfTheLargest) {
  for (const char* variant : kAllVariants) {
    for (const int64_t num_ids : {1, 3, 255, 1000, 128256}) {
      const int64_t num_rows = num_ids == 1000 ? 20 : 5;
      // Padding columns hold more than any id.
      const Tensor logits = random_tensor({num_rows, num_ids + 9}, DType::kFloat32, 3, 8.0f);
      std::vector<int32_t> expected;
      for (int64_t row = 0; row < num_rows; ++row) {
        float* values = logits.data<float>() + row * logits.stride(0);
        std::fill(values + num_ids, values + num_ids + 9, 100.0f);
        const int64_t first = (row * 7919) % num_ids;
        values[first] = 50.0f;
        values[num_ids - 1] = 50.0f;
        expected.push_back(static_cast<int32_t>(first));
      }
      const std::vector<int32_t> got = choices(variant, logits, num_ids);
      if (got.empty()) continue;
      EXPECT_EQ(got, expected) << variant << " of " << num_ids;
    }
  }
}

TEST(Argmax, OrdersSignsAndZeros) {
  const float rows[][3] = {
      {-3.0f, -1.0f, -2.0f}, {-1.0f, 0.0f, -0.0f}, {-0.0f, 0.0f, -1.0f}, {-INFINITY, -5.0f, -9.0f}};
  const int32_t expected[] = {1, 1, 0, 1};
  for (const char* variant : kAllVariants) {
    for (int i = 0; i < 4; ++i) {
      const Tensor logits = Tensor::zeros({1, 3}, DType::kFloat32);
      std::copy(rows[i], rows[i] + 3, logits.data<float>());
      const std::vector<int32_t> got = choices(variant, logits, 3);
      if (got.empty()) continue;
      EXPECT_EQ(got[0], expected[i]) << variant << " row " << i;
    }
  }
}

TEST(Argmax, RowsWithoutAChoice) {
  for (const char* variant : kAllVariants) {
    for (const float fault : {NAN, INFINITY, -INFINITY}) {
      const Tensor logits = random_tensor({3, 700}, DType::kFloat32, 1);
      float* middle = logits.data<float>() + 700;
      if (fault == -INFINITY) {
        std::fill(middle, middle + 700, fault);
      } else {
        middle[699] = fault;
      }
      const std::vector<int32_t> got = choices(variant, logits, 700);
      if (got.empty()) continue;
      EXPECT_GE(got[0], 0);
      EXPECT_EQ(got[1], fault == -INFINITY ? -2 : -1) << variant << " " << fault;
      EXPECT_GE(got[2], 0);
    }
  }
}

// Of ranks with a part of the columns each, the last of which has padding alone.
TEST(Argmax, KeysOfPartsChooseAsTheWholeRow) {
  constexpr int64_t kRows = 6, kColumns = 300, kIds = 520;
  const Tensor logits = random_tensor({kRows, 3 * kColumns}, DType::kFloat32, 5, 8.0f);
  float* values = logits.data<float>();
  const auto row = [&](int64_t index) { return values + index * logits.stride(0); };
  row(1)[17] = row(1)[417] = 50.0f;
  row(2)[519] = 50.0f;
  row(3)[301] = NAN;
  std::fill(row(4), row(4) + kIds, -INFINITY);
  row(5)[700] = INFINITY;  // padding
  ThreadPool pool(2);
  const Tensor expected = Tensor::zeros({kRows}, DType::kInt32);
  Workspace scratch(1 << 20);
  argmax(Stream(&pool), logits, kIds, expected, scratch);
  for (const bool on_gpu : {false, true}) {
    if (on_gpu && test_gpu() == nullptr) continue;
    const Tensor keys = Tensor::zeros({3, kRows, kArgmaxKeys}, DType::kInt64);
    const Tensor out = Tensor::zeros({kRows}, DType::kInt32);
    Placed at(on_gpu, pool, {logits, keys, out});
    for (int64_t rank = 0; rank < 3; ++rank) {
      argmax_keys(at.stream(),
                  at(logits).narrow(1, rank * kColumns, kColumns),
                  std::clamp<int64_t>(kIds - rank * kColumns, 0, kColumns),
                  rank * kColumns,
                  at(keys).narrow(0, rank, 1).view({kRows, kArgmaxKeys}));
    }
    argmax_of_keys(at.stream(), at(keys), at(out));
    at.finish();
    EXPECT_TRUE(std::ranges::equal(std::span(out.data<int32_t>(), kRows),
                                   std::span(expected.data<int32_t>(), kRows)));
  }
  EXPECT_EQ(expected.data<int32_t>()[1], 17);
  EXPECT_EQ(expected.data<int32_t>()[3], -1);
  EXPECT_EQ(expected.data<int32_t>()[4], -2);
}

TEST(Argmax, PublicCallRunsAndDryRunTouchesNothing) {
  ThreadPool pool(1);
  Workspace scratch(1 << 16);
  const Tensor logits = random_tensor({2, 40}, DType::kFloat32, 1);
  logits.data<float>()[7] = 9;
  const Tensor out = Tensor::zeros({2}, DType::kInt32);
  argmax(Stream::dry_run(), logits, 40, out, scratch);
  EXPECT_EQ(out.data<int32_t>()[0], 0);
  argmax(Stream(&pool), logits, 40, out, scratch);
  EXPECT_EQ(out.data<int32_t>()[0], 7);
}

}  // namespace
}  // namespace atom::ops
