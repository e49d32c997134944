#include "ops/pending_tokens/pending_tokens.h"

#include <gtest/gtest.h>

#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

Tensor tensor_of(const std::vector<int32_t>& values) {
  const Tensor tensor = Tensor::zeros({static_cast<int64_t>(values.size())}, DType::kInt32);
  std::copy(values.begin(), values.end(), tensor.data<int32_t>());
  return tensor;
}

TEST(PendingTokens, TakesWhatTheRowChoseAndLeavesTheRest) {
  std::vector<int32_t> ids, expected;
  for (int32_t i = 0; i < 300; ++i) {
    const bool pending = i % 3 == 1;
    ids.push_back(pending ? ~(i % 4) : 1000 + i);
    const int32_t chosen[] = {7, 0, 128255, 0};  // rows 1 and 3 have no choice
    expected.push_back(pending ? chosen[i % 4] : 1000 + i);
  }
  for (const char* variant : {"reference", "cuda"}) {
    if (is_gpu_variant(variant) && test_gpu() == nullptr) continue;
    const Tensor chosen = tensor_of({7, -1, 128255, -2});
    const Tensor token_ids = tensor_of(ids);
    ThreadPool pool(1);
    run_variant(variant, pool, {chosen, token_ids}, [&](const Placed& at) {
      fill_pending_tokens(at.stream(), at(chosen), at(token_ids));
      return true;
    });
    const int32_t* got = token_ids.data<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(got, got + ids.size()), expected) << variant;
  }
}

}  // namespace
}  // namespace atom::ops
