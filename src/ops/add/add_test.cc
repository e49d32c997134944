#include "ops/add/add.h"

#include <gtest/gtest.h>

#include "ops/add/add_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

void check_sum(const char* variant, const Shape& shape, DType dtype) {
  ThreadPool pool(2);
  const Tensor x = random_tensor(shape, dtype, 1);
  const Tensor out = random_tensor(shape, dtype, 2);
  const auto values = values_of(x);
  auto expected = values_of(out);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += values[i];
  const bool ran = run_variant(variant, pool, {x, out}, [&](const Placed& at) {
    return add_by(variant, at.stream(), at(x), at(out));
  });
  if (!ran) return;
  const double tolerance = dtype == DType::kFloat32 ? 1e-7 : 1.01 * half_ulp(dtype);
  expect_close(out, expected, tolerance, 1e-7, std::string(variant) + " " + x.to_string());
}

TEST(Add, EveryVariantMatchesDoubleArithmetic) {
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Shape& shape : {Shape{1, 1}, Shape{3, 37}, Shape{1, 7168}, Shape{70, 1024}}) {
        check_sum(variant, shape, dtype);
      }
    }
  }
}

TEST(AddDeathTest, RefusesRowsOfAnotherSize) {
  const Tensor x = Tensor::meta({4, 16}, DType::kBFloat16);
  const Tensor out = Tensor::meta({4, 8}, DType::kBFloat16);
  EXPECT_DEATH(add(Stream::dry_run(), x, out), "\\[add\\] out");
}

}  // namespace
}  // namespace atom::ops
