#include "config/dp_environment.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

TEST(DpEnvironment, TheSizeCountsMoreThanTheFlag) {
  EngineConfig config;
  config.parallel.data_parallel_size = 3;
  Env variables;
  ASSERT_TRUE(apply_dp_environment(variables, &config).ok());
  EXPECT_EQ(config.parallel.data_parallel_size, 3);
  variables.dp_size = "2";
  variables.dp_rank = variables.dp_rank_local = "0";
  variables.dp_master_ip = "127.0.0.1";
  variables.dp_master_port = "29500";
  ASSERT_TRUE(apply_dp_environment(variables, &config).ok());
  EXPECT_EQ(config.parallel.data_parallel_size, 2);
}

TEST(DpEnvironment, WhatThisProcessIsNotIsRefusedByName) {
  const std::pair<std::string Env::*, const char*> cases[] = {
      {&Env::dp_rank, "ATOM_DP_RANK='12'"},
      {&Env::dp_rank_local, "ATOM_DP_RANK_LOCAL='12'"},
      {&Env::dp_master_ip, "ATOM_DP_MASTER_IP='12'"},
  };
  for (const auto& [variable, text] : cases) {
    Env variables;
    variables.*variable = "12";
    EngineConfig config;
    const Status status = apply_dp_environment(variables, &config);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_TRUE(status.message().starts_with(text)) << status.message();
  }
}

TEST(DpEnvironment, NonsenseIsWrong) {
  for (const char* text : {"0", "65", "-1", "two", "2 ", "99999999999"}) {
    Env variables;
    variables.dp_size = text;
    EngineConfig config;
    EXPECT_EQ(apply_dp_environment(variables, &config).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(config.parallel.data_parallel_size, 1);
    variables = {};
    variables.dp_master_port = text;
    if (std::string(text) != "65") {
      EXPECT_EQ(apply_dp_environment(variables, &config).code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace atom
