#include "cli/foreign_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "config/flags.h"

namespace atom::cli {
namespace {

class TranslatedOptions : public ::testing::Test {
 protected:
  Status set(const std::string& name, const std::string& value) {
    config_ = {};
    const std::vector<Option> options = translated_options(kCommandServe, &config_);
    const auto found = std::ranges::find_if(
        options, [&](const Option& option) { return option.names.front() == name; });
    return found == options.end() ? not_found("{}", name) : found->set(value);
  }

  EngineConfig config_;
};

TEST_F(TranslatedOptions, EagerIsWithoutGraphs) {
  EXPECT_TRUE(EngineConfig().device.enable_graphs);
  ASSERT_TRUE(set("--enforce-eager", "true").ok());
  EXPECT_FALSE(config_.device.enable_graphs);
  ASSERT_TRUE(set("--enforce-eager", "false").ok());
  EXPECT_TRUE(config_.device.enable_graphs);
  ASSERT_TRUE(set("--level", "0").ok());
  EXPECT_FALSE(config_.device.enable_graphs);
  ASSERT_TRUE(set("--level", "3").ok());
  EXPECT_TRUE(config_.device.enable_graphs);
  ASSERT_TRUE(set("--cudagraph-mode", "NONE").ok());
  EXPECT_FALSE(config_.device.enable_graphs);
  ASSERT_TRUE(set("--cudagraph-mode", "FULL").ok());
  EXPECT_TRUE(config_.device.enable_graphs);
}

TEST_F(TranslatedOptions, OtherValuesAreRefused) {
  EXPECT_FALSE(set("--level", "4").ok());
  EXPECT_FALSE(set("--cudagraph-mode", "PIECEWISE").ok());
  EXPECT_FALSE(set("--load-format", "gguf").ok());
}

TEST(ForeignOptions, ARefusedValueNamesTheReason) {
  const std::vector<Option> options = foreign_options(kCommandServe);
  const auto found = std::ranges::find_if(
      options, [](const Option& option) { return option.names.front() == "--index-cache-dtype"; });
  ASSERT_NE(found, options.end());
  EXPECT_TRUE(found->set("bf16").ok());
  EXPECT_EQ(
      found->set("fp8").message(),
      "--index-cache-dtype is 'fp8'; expected one of auto|bf16: the keys of an indexer are of "
      "the model's type");
}

TEST_F(TranslatedOptions, WeightsAndProfiles) {
  ASSERT_TRUE(set("--load-format", "dummy").ok());
  EXPECT_EQ(config_.model.load_dummy, DummyWeights::kRandom);
  ASSERT_TRUE(set("--load-format", "safetensors").ok());
  EXPECT_EQ(config_.model.load_dummy, DummyWeights::kNone);
  ASSERT_TRUE(set("--torch-profiler-dir", "somewhere").ok());
  EXPECT_EQ(config_.profile_dir, "somewhere");
}

}  // namespace
}  // namespace atom::cli
