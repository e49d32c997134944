#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <gtest/gtest.h>

#include "ops/quantize/quantize_variants.h"
#include "ops/quantize/test_codes.h"
#include "ops/sigmoid_gate/sigmoid_gate_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Case {
  int64_t num_tokens, num_heads, head_dim;
  bool gate_per_row;
};

const Case kCases[] = {
    {1, 1, 2, false}, {3, 2, 20, false}, {70, 4, 256, false}, {3, 1, 2048, true}, {2, 3, 37, true}};

void check_case(const char* variant, const Case& c, DType dtype, bool adds) {
  ThreadPool pool(2);
  // Each head of a packed row has its values and then its gates.
  const Tensor packed = random_tensor({c.num_tokens, c.num_heads + 1, 2 * c.head_dim}, dtype, 1, 6);
  const Tensor x = packed.narrow(1, 0, c.num_heads).narrow(2, 0, c.head_dim);
  const Tensor gate =
      packed.narrow(1, 0, c.num_heads).narrow(2, c.head_dim, c.gate_per_row ? 1 : c.head_dim);
  const Tensor out = random_tensor({c.num_tokens, c.num_heads, c.head_dim}, dtype, 2);
  const auto values = values_of(x), gates = values_of(gate);
  auto expected = values_of(out);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double z = gates[c.gate_per_row ? i / c.head_dim : i];
    expected[i] = (adds ? expected[i] : 0) + values[i] / (1 + std::exp(-z));
  }
  const auto run = [&](const Tensor& to) {
    return run_variant(variant, pool, {packed, to}, [&](const Placed& at) {
      return sigmoid_gate_by(variant, at.stream(), at(x), at(gate), adds, at(to));
    });
  };
  if (!run(out)) return;
  const std::string what = std::string(variant) + " " + x.to_string();
  const double tolerance = dtype == DType::kFloat32 ? 1e-6 : 1.01 * half_ulp(dtype);
  expect_close(out, expected, tolerance, 1e-6, what);
  if (adds) return;
  run(x);
  EXPECT_EQ(values_of(x), values_of(out)) << "in place, " << what;
}

TEST(SigmoidGate, EveryVariantMatchesDoubleArithmetic) {
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        check_case(variant, c, dtype, false);
        check_case(variant, c, dtype, true);
      }
    }
  }
}

void check_codes(const char* variant, const Case& c, DType dtype) {
  ThreadPool pool(2);
  const Shape heads = {c.num_tokens, c.num_heads, c.head_dim};
  const Tensor packed = random_tensor({c.num_tokens, c.num_heads, 2 * c.head_dim}, dtype, 1, 6);
  const Tensor x = random_tensor(heads, dtype, 2, 6);
  const Tensor gate = packed.narrow(2, c.head_dim, c.gate_per_row ? 1 : c.head_dim);
  const Tensor rows = Tensor::zeros(heads, dtype);
  const int64_t size = c.num_heads * c.head_dim;
  const QuantizedRows got = spoiled_group_codes(c.num_tokens, size),
                      expected = spoiled_group_codes(c.num_tokens, size);
  const auto run = [&](const Tensor& to, const QuantizedRows& out) {
    return run_variant(
        variant, pool, {packed, x, to, out.values, out.scales}, [&](const Placed& at) {
          return sigmoid_gate_by(variant,
                                 at.stream(),
                                 at(x),
                                 at(gate),
                                 false,
                                 at(to),
                                 {at(out.values), at(out.scales), out.granularity});
        });
  };
  if (!run({}, got)) return;
  ASSERT_TRUE(run(rows, {}));
  ASSERT_TRUE(quantize_by("reference", Stream(&pool), rows.view({c.num_tokens, size}), expected));
  const std::string what = std::string(variant) + " " + x.to_string();
  EXPECT_TRUE(have_same_bits(got, expected)) << what;
}

TEST(SigmoidGate, EveryVariantLeavesTheCodesOfItsRows) {
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : {Case{1, 16, 256, false},
                            Case{131, 3, 128, false},
                            Case{5, 2, 128, true},
                            Case{3, 2, 20, false}}) {
        check_codes(variant, c, dtype);
      }
    }
  }
}

TEST(SigmoidGateDeathTest, RefusesAGateOfAnotherSize) {
  const Tensor x = Tensor::meta({4, 2, 16}, DType::kBFloat16);
  const Tensor gate = Tensor::meta({4, 2, 8}, DType::kBFloat16);
  EXPECT_DEATH(sigmoid_gate(Stream::dry_run(), x, gate, x), "\\[sigmoid_gate\\] gate");
}

}  // namespace
}  // namespace atom::ops
