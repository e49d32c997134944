#include "config/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/suggest.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

const FlagSpec& flag(std::string_view name) {
  const FlagSpec* found = find_flag(name);
  CHECK(found != nullptr);
  return *found;
}

TEST(Flags, EverySpellingIsUniqueAndEveryFlagIsComplete) {
  std::set<std::string> spellings;
  for (const FlagSpec& spec : flag_specs()) {
    EXPECT_TRUE(spellings.insert("--" + spec.name).second) << spec.name;
    for (const std::string& alias : spec.aliases) {
      EXPECT_TRUE(alias.starts_with("-")) << alias;
      EXPECT_TRUE(spellings.insert(alias).second) << alias;
      EXPECT_EQ(find_flag(alias), &spec);
    }
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_FALSE(spec.group.empty()) << spec.name;
    EXPECT_NE(spec.commands, 0u) << spec.name;
    EXPECT_EQ(spec.get(EngineConfig()), spec.default_value) << spec.name;
  }
}

TEST(Flags, EveryDefaultCanBeGivenExplicitly) {
  for (const FlagSpec& spec : flag_specs()) {
    EngineConfig config;
    const Status status = spec.set(&config, spec.default_value);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(spec.get(config), spec.default_value);
  }
}

TEST(Flags, SpellingsOfTheOriginalAreAccepted) {
  EXPECT_EQ(find_flag("--max_model_len"), find_flag("max-model-len"));
  EXPECT_EQ(find_flag("-tp")->name, "tensor-parallel-size");
  EXPECT_EQ(find_flag("--num-gpu-blocks-override")->name, "num-blocks");
  EXPECT_EQ(find_flag("--no-such-flag"), nullptr);
}

TEST(Flags, StoresValues) {
  EngineConfig config;
  EXPECT_TRUE(flag("max-model-len").set(&config, "4096").ok());
  EXPECT_EQ(config.model.max_model_len, 4096);
  EXPECT_TRUE(flag("enable-prefix-caching").set(&config, "false").ok());
  EXPECT_FALSE(config.cache.enable_prefix_caching);
  EXPECT_TRUE(flag("dtype").set(&config, "float16").ok());
  EXPECT_EQ(config.model.dtype, DType::kFloat16);
  EXPECT_TRUE(flag("dtype").set(&config, "auto").ok());
  EXPECT_FALSE(config.model.dtype.has_value());
  EXPECT_EQ(flag("load-dummy").implicit_value, "random");
  EXPECT_TRUE(flag("load-dummy").set(&config, "zero").ok());
  EXPECT_EQ(config.model.load_dummy, DummyWeights::kZero);
  EXPECT_TRUE(flag("dp-load-balance").set(&config, "least_tokens").ok());
  EXPECT_EQ(config.parallel.data_parallel_balance, DataParallelBalance::kLeastTokens);
  EXPECT_TRUE(flag("load-dummy").set(&config, "xavier").ok());
  EXPECT_EQ(config.model.load_dummy, DummyWeights::kRandom);
  EXPECT_TRUE(flag("kv-cache-dtype").set(&config, "bf16").ok());
  EXPECT_EQ(config.cache.dtype, DType::kBFloat16);
  EXPECT_TRUE(flag("mamba-ssm-cache-dtype").set(&config, "bfloat16").ok());
  EXPECT_EQ(config.cache.state_dtype, DType::kBFloat16);
  EXPECT_FALSE(flag("mamba-ssm-cache-dtype").set(&config, "fp8").ok());
  EXPECT_TRUE(flag("scheduling-policy").set(&config, "prefill-first").ok());
  EXPECT_EQ(config.scheduler.policy, SchedulingPolicy::kPrefillFirst);
  EXPECT_TRUE(flag("seed").set(&config, "18446744073709551615").ok());
  EXPECT_EQ(config.model.seed, UINT64_MAX);
  EXPECT_TRUE(flag("cpu-memory-utilization").set(&config, "0.5").ok());
  EXPECT_EQ(config.cache.cpu_memory_utilization, 0.5);
}

TEST(Flags, RefusesBadValuesByName) {
  EngineConfig config;
  EXPECT_EQ(flag("block-size").set(&config, "0").message(),
            "--block-size is '0'; expected an integer in [1, 1024]");
  EXPECT_EQ(flag("load-dummy").set(&config, "fancy").message(),
            "--load-dummy is 'fancy'; expected one of none|empty|zero|random|xavier");
  for (const char* value : {"", " 1", "1 ", "1.5", "abc", "0x10", "99999999999", "-1", "+1"}) {
    EXPECT_FALSE(flag("max-num-seqs").set(&config, value).ok()) << value;
  }
  for (const char* value : {"nan", "inf", "2", "-1", "0", "", "1e999"}) {
    EXPECT_FALSE(flag("cpu-memory-utilization").set(&config, value).ok()) << value;
  }
  for (const char* value : {"yes", "", "TRUE"}) {
    EXPECT_FALSE(flag("enable-prefix-caching").set(&config, value).ok()) << value;
  }
  EXPECT_FALSE(flag("model").set(&config, std::string(5000, 'x')).ok());
  EXPECT_EQ(config.scheduler.max_num_seqs, EngineConfig().scheduler.max_num_seqs);
}

TEST(Flags, Bytes) {
  const FlagSpec& memory = flag("kv-cache-memory");
  const std::pair<const char*, int64_t> good[] = {{"0", 0},
                                                  {"1000", 1000},
                                                  {"512M", int64_t{512} << 20},
                                                  {"4GiB", int64_t{4} << 30},
                                                  {"4GB", int64_t{4} << 30},
                                                  {"3K", 3072},
                                                  {"7B", 7}};
  for (const auto& [text, bytes] : good) {
    EngineConfig config;
    EXPECT_TRUE(memory.set(&config, text).ok()) << text;
    EXPECT_EQ(config.cache.kv_cache_memory, bytes) << text;
  }
  EngineConfig config;
  for (const char* text :
       {"", "G", "GiB", "B", "-1G", "1.5G", "4g", "4 G", "9999999T", "99999999999999999999"}) {
    EXPECT_FALSE(memory.set(&config, text).ok()) << text;
  }
  config.cache.kv_cache_memory = int64_t{3} << 29;
  EXPECT_EQ(memory.get(config), "1536MiB");
  EXPECT_EQ(memory.range, "[0, 1024TiB]");
}

TEST(NearestName, FindsTyposOnly) {
  std::vector<std::string> names;
  for (const FlagSpec& spec : flag_specs()) names.push_back(spec.name);
  EXPECT_EQ(nearest_name("max-model-length", names), "max-model-len");
  EXPECT_EQ(nearest_name("max-modle-len", names), "max-model-len");
  EXPECT_EQ(nearest_name("dtpye", names), "dtype");
  EXPECT_EQ(nearest_name("entirely-different", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(10000, 'a'), names), "");
}

}  // namespace
}  // namespace atom
