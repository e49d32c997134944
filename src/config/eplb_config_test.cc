#include "config/eplb_config.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

EplbConfig config_of(const std::string& json, bool enabled = true) {
  EplbConfig config;
  config.enabled = enabled;
  config.json = json;
  return config;
}

TEST(EplbConfig, IsReadFromJson) {
  const Result<EplbConfig> plain = resolve_eplb(config_of(""));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->num_redundant_experts, 0);
  EXPECT_EQ(plain->load_window_size, 1000);
  EXPECT_EQ(plain->rebalance_interval, 3000);
  EXPECT_EQ(plain->rebalance_min_balancedness, 1);
  const Result<EplbConfig> all = resolve_eplb(
      config_of(R"({"num_redundant_experts": 16, "load_window_size": 50, "rebalance_interval": 200,
                    "rebalance_min_balancedness": 0.75, "placement_policy": "greedy"})"));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->num_redundant_experts, 16);
  EXPECT_EQ(all->load_window_size, 50);
  EXPECT_EQ(all->rebalance_interval, 200);
  EXPECT_EQ(all->rebalance_min_balancedness, 0.75);
  // Read again it is the same.
  EXPECT_EQ(resolve_eplb(*all)->load_window_size, 50);
}

TEST(EplbConfig, AWindowDoesNotReachBehindTheLastMove) {
  EXPECT_EQ(resolve_eplb(config_of(R"({"rebalance_interval": 20})"))->load_window_size, 20);
  EXPECT_EQ(resolve_eplb(config_of(R"({"rebalance_interval": 20, "load_window_size": 21})"))
                .status()
                .message(),
            "--eplb-config: 'load_window_size' is 21; expected an integer in [1, 20]");
}

TEST(EplbConfig, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "--eplb-config: expected a JSON object"},
      {R"({"window_size": 3})",
       "--eplb-config: unknown key 'window_size'; expected num_redundant_experts, "
       "load_window_size, rebalance_interval, rebalance_min_balancedness, placement_policy"},
      {R"({"placement_policy": "flat"})",
       "--eplb-config: 'placement_policy' is 'flat'; expected greedy"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_EQ(resolve_eplb(config_of(json)).status().message(), message);
  }
  for (const char* json : {"{",
                           R"({"num_redundant_experts": -1})",
                           R"({"num_redundant_experts": 1e9})",
                           R"({"num_redundant_experts": "2"})",
                           R"({"rebalance_interval": 0})",
                           R"({"rebalance_min_balancedness": 1.5})"}) {
    EXPECT_FALSE(resolve_eplb(config_of(json)).ok()) << json;
  }
  EXPECT_EQ(resolve_eplb(config_of("{}", false)).status().message(),
            "--eplb-config needs --enable-eplb");
}

}  // namespace
}  // namespace atom
