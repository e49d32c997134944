#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/numeric.h"

namespace atom {
namespace {

template <typename T>
std::vector<T> reduce_two(ReduceOp op, DType dtype, std::vector<T> a, std::vector<T> b) {
  const void* sources[] = {a.data(), b.data()};
  void* targets[] = {a.data(), b.data()};
  reduce_in_order(op, dtype, sources, targets, static_cast<int64_t>(a.size()));
  EXPECT_EQ(a, b);
  return a;
}

TEST(Reduce, AddsComparesAndWritesAllTargets) {
  EXPECT_EQ(reduce_two<int32_t>(ReduceOp::kSum, DType::kInt32, {1, 2, 3}, {4, -5, 6}),
            (std::vector<int32_t>{5, -3, 9}));
  EXPECT_EQ(reduce_two<int64_t>(ReduceOp::kMin, DType::kInt64, {1, int64_t{1} << 40}, {4, 5}),
            (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(reduce_two<float>(ReduceOp::kMax, DType::kFloat32, {1, -2}, {-4, -1}),
            (std::vector<float>{1, -1}));
}

TEST(Reduce, FloatsAreAddedInTheOrderOfSources) {
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 1.0f};  // any other order gives 1 or 2
  std::vector<const void*> sources;
  for (const float& value : values) sources.push_back(&value);
  float sum = 0;
  void* target = &sum;
  reduce_in_order(ReduceOp::kSum, DType::kFloat32, sources, {&target, 1}, 1);
  EXPECT_EQ(sum, ((1e8f + 1.0f) + -1e8f) + 1.0f);
}

TEST(Reduce, SixteenBitsAreRoundedOnce) {
  // A bfloat16 has 8 bits: 256 + 1 is 256 when rounded after each addition.
  const std::vector<BFloat16> values = {
      from_float<BFloat16>(256), from_float<BFloat16>(1), from_float<BFloat16>(1)};
  std::vector<const void*> sources;
  for (const BFloat16& value : values) sources.push_back(&value);
  BFloat16 sum;
  void* target = &sum;
  reduce_in_order(ReduceOp::kSum, DType::kBFloat16, sources, {&target, 1}, 1);
  EXPECT_EQ(to_float(sum), 258.0f);
}

TEST(Reduce, LongTensorsAreWhole) {
  std::vector<int32_t> a(5000), b(5000), sum(5000);
  for (int32_t i = 0; i < 5000; ++i) {
    a[i] = i;
    b[i] = 3 * i;
  }
  const void* sources[] = {a.data(), b.data()};
  void* target = sum.data();
  reduce_in_order(ReduceOp::kSum, DType::kInt32, sources, {&target, 1}, 5000);
  for (int32_t i = 0; i < 5000; ++i) ASSERT_EQ(sum[i], 4 * i);
}

}  // namespace
}  // namespace atom
