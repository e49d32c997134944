#include "runner/expert_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"
#include "ops/moe_route/moe_route_kinds.h"

namespace atom {
namespace {

TEST(ExpertCounter, CountsLayersByTheMean) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const ops::MoeRouting routing = {.top_k = 2, .num_shared = 1};
  const Tensor logits = Tensor::zeros({3, 8}, DType::kFloat32);
  ExpertCounter counter;
  EXPECT_EQ(counter.load().num_layers, 0);
  // Three tokens with a shared expert behind their choices.
  for (const std::vector<int32_t>& layer : std::vector<std::vector<int32_t>>{
           {0, 1, 8, 0, 2, 8, 0, 3, 8}, {4, 5, 8, 6, 7, 8, 4, 7, 8}}) {
    const Tensor ids = Tensor::empty({3, 3}, DType::kInt32);
    std::ranges::copy(layer, ids.data<int32_t>());
    counter.on_experts(stream, logits, routing, ids, Tensor());
  }
  const ExpertLoad load = counter.load();
  EXPECT_EQ(load.num_layers, 2);
  EXPECT_EQ(load.num_chosen, 4);
  EXPECT_EQ(load.num_choices, 6);
  EXPECT_EQ(load.largest, 2.5);
  EXPECT_EQ(load.tokens_per_chosen(), 1.5);
}

}  // namespace
}  // namespace atom
