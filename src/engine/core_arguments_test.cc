#include "engine/core_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/flags.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

CoreArguments full_arguments() {
  CoreArguments arguments;
  arguments.endpoints = {"ipc:///tmp/a b/requests", "ipc:///tmp/a b/responses", "core-0"};
  arguments.endpoints.heartbeat = std::chrono::milliseconds(20);
  arguments.num_sampled_ids = 151936;
  arguments.lifeline = 3;
  arguments.config.model.model = "--odd=name";
  arguments.config.model.dtype = DType::kFloat32;
  arguments.config.model.skip_tokenizer_init = true;
  arguments.config.model.seed = UINT64_MAX;
  arguments.config.cache.enable_prefix_caching = false;
  arguments.config.cache.kv_cache_memory = 1000001;
  arguments.config.cache.cpu_memory_utilization = 0.1 + 0.2;
  arguments.config.scheduler.policy = SchedulingPolicy::kPriority;
  arguments.config.log_level = "debug";
  return arguments;
}

Result<CoreArguments> parse(std::vector<std::string> arguments) {
  return parse_core_arguments(arguments);
}

TEST(CoreArguments, SurviveTheCommandLine) {
  const CoreArguments original = full_arguments();
  const std::vector<std::string> formatted = format_core_arguments(original);
  EXPECT_EQ(formatted[0], kEngineCoreCommand);
  const CoreArguments parsed = parse_core_arguments(std::span(formatted).subspan(1)).value();
  EXPECT_EQ(parsed.endpoints.requests, original.endpoints.requests);
  EXPECT_EQ(parsed.endpoints.responses, original.endpoints.responses);
  EXPECT_EQ(parsed.endpoints.identity, "core-0");
  EXPECT_EQ(parsed.endpoints.heartbeat.count(), 20);
  EXPECT_EQ(parsed.num_sampled_ids, 151936);
  EXPECT_EQ(parsed.lifeline, 3);
  EXPECT_EQ(parsed.config.cache.cpu_memory_utilization, 0.1 + 0.2);
  for (const FlagSpec& flag : flag_specs()) {
    EXPECT_EQ(flag.get(parsed.config), flag.get(original.config)) << flag.name;
  }
}

TEST(CoreArguments, DefaultsAreLeftOut) {
  CoreArguments arguments;
  arguments.endpoints = {"r", "s", "i"};
  for (const std::string& argument : format_core_arguments(arguments)) {
    EXPECT_THAT(argument, ::testing::Not(HasSubstr("block-size")));
  }
}

TEST(CoreArguments, ErrorsNameTheArgument) {
  const std::vector<std::string> needed = {"--requests=r", "--responses=s", "--identity=i"};
  EXPECT_TRUE(parse(needed).ok());
  for (const char* wrong : {"--no-such-flag=1",
                            "--block-size=x",
                            "--heartbeat-ms=-1",
                            "--lifeline=99999999999",
                            "--num-sampled-ids=",
                            "block-size=4",
                            "--block-size"}) {
    std::vector<std::string> arguments = needed;
    arguments.push_back(wrong);
    const Result<CoreArguments> parsed = parse(arguments);
    ASSERT_FALSE(parsed.ok()) << wrong;
    const std::string name = std::string(wrong).substr(2, std::string(wrong).find('=') - 2);
    EXPECT_THAT(parsed.status().message(), HasSubstr(name));
  }
  EXPECT_FALSE(parse({"--requests=r", "--responses=s"}).ok());
}

}  // namespace
}  // namespace atom
