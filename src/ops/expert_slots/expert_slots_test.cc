#include "ops/expert_slots/expert_slots.h"

#include <gtest/gtest.h>

#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

Tensor tensor_of(const std::vector<int32_t>& values, const Shape& shape) {
  const Tensor tensor = Tensor::zeros(shape, DType::kInt32);
  std::copy(values.begin(), values.end(), tensor.data<int32_t>());
  return tensor;
}

// Three experts: 0 in slots 1 and 4, 1 in 0, 2 in 2, 3 and 5.
ExpertPlaces places(bool counting) {
  return {tensor_of({counting, 0, 2, 3, 6, 1, 4, 0, 2, 3, 5}, {11}), 3};
}

constexpr int64_t kTokens = 70;
constexpr int64_t kChoices = 5;

struct Result {
  std::vector<int32_t> ids;
  std::vector<int64_t> counts;
};

// Token t has id 10 * t at position t, chooses all experts, a shared one and nothing; every third
// is padding.
Result choose(const char* variant, bool counting, bool has_mapping) {
  std::vector<int32_t> token_ids, positions, mapping, chosen;
  for (int32_t t = 0; t < kTokens; ++t) {
    token_ids.push_back(10 * t);
    positions.push_back(t);
    mapping.push_back(t % 3 == 2 ? -1 : t);
    for (const int32_t id : {0, 3, 2, -1, 1}) chosen.push_back(id);
  }
  const Tensor ids = tensor_of(chosen, {kTokens, kChoices});
  const Tensor tokens = tensor_of(token_ids, {kTokens}),
               at_position = tensor_of(positions, {kTokens});
  const Tensor slots = tensor_of(mapping, {kTokens});
  const Tensor counts = Tensor::zeros({3}, DType::kInt64);
  counts.data<int64_t>()[1] = 7;
  const ExpertPlaces of = places(counting);
  ThreadPool pool(1);
  run_variant(
      variant, pool, {tokens, at_position, slots, of.table, counts, ids}, [&](const Placed& at) {
        choose_expert_slots(at.stream(),
                            at(tokens),
                            at(at_position),
                            has_mapping ? at(slots) : Tensor(),
                            {at(of.table), of.num_experts},
                            at(counts),
                            at(ids));
        return true;
      });
  return {{ids.data<int32_t>(), ids.data<int32_t>() + ids.num_elements()},
          {counts.data<int64_t>(), counts.data<int64_t>() + 3}};
}

TEST(ExpertSlots, ATokenHasAlwaysTheSameSlotOfAnExpertAndPaddingDoesNotCount) {
  constexpr int32_t kOfFirst[] = {1, 4}, kOfLast[] = {2, 3, 5};
  std::vector<int32_t> expected;
  for (int32_t t = 0; t < kTokens; ++t) {
    for (const int32_t id : {kOfFirst[11 * t % 2], 6, kOfLast[11 * t % 3], -1, 0}) {
      expected.push_back(id);
    }
  }
  for (const char* variant : {"reference", "cuda"}) {
    SCOPED_TRACE(variant);
    if (is_gpu_variant(variant) && test_gpu() == nullptr) continue;
    const Result some = choose(variant, true, true), all = choose(variant, true, false),
                 none = choose(variant, false, true);
    EXPECT_EQ(some.ids, expected);
    EXPECT_EQ(none.ids, expected);
    constexpr int64_t kPadding = kTokens / 3;
    EXPECT_EQ(
        some.counts,
        (std::vector<int64_t>{kTokens - kPadding, 7 + kTokens - kPadding, kTokens - kPadding}));
    EXPECT_EQ(all.counts, (std::vector<int64_t>{kTokens, 7 + kTokens, kTokens}));
    EXPECT_EQ(none.counts, (std::vector<int64_t>{0, 7, 0}));
  }
}

}  // namespace
}  // namespace atom::ops
