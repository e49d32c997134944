#include "config/attention_flops.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

namespace atom {
namespace {

ModelConfig attention_of(const char* json) {
  ModelConfig config;
  config.num_attention_heads = 16;
  config.head_dim = 64;
  config.raw = std::make_shared<const Json>(Json::parse(json));
  return config;
}

TEST(AttentionFlops, AKeyAndAValueAreAsWideAsAHead) {
  const PairFlops flops = attention_pair_flops(attention_of("{}"));
  EXPECT_EQ(flops.decode, 2 * 16 * (64 + 64));
  EXPECT_EQ(flops.prefill, flops.decode);
}

TEST(AttentionFlops, LatentsAreWiderThanWhatTheyExpandTo) {
  const PairFlops flops = attention_pair_flops(attention_of(
      R"({"kv_lora_rank": 512, "qk_rope_head_dim": 64,
          "qk_nope_head_dim": 128, "v_head_dim": 96})"));
  EXPECT_EQ(flops.decode, 2 * 16 * (512 + 64 + 512));
  EXPECT_EQ(flops.prefill, 2 * 16 * (128 + 64 + 96));
}

}  // namespace
}  // namespace atom
