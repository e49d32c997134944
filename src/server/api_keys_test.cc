#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atom::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

std::vector<ApiKey> parse(const std::string& text) {
  Result<std::vector<ApiKey>> keys = parse_api_keys(text, "keys");
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  return keys.ok() ? *std::move(keys) : std::vector<ApiKey>();
}

std::string error_of(const std::string& text) {
  return parse_api_keys(text, "keys").status().message();
}

TEST(ApiKeyFile, HasALineForEachKey) {
  const std::vector<ApiKey> keys = parse(
      "# comment\n\n  plain  \r\n"
      "second name=team scopes=inference,profiling requests_per_minute=60 tokens_per_minute=1000 "
      "max_places=4 min_priority=-1 max_priority=9\nscraper scopes=metrics");
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0].secret, "plain");
  EXPECT_EQ(keys[0].name, "line-3");
  EXPECT_EQ(keys[0].scopes, ApiKey::kAllScopes);
  EXPECT_EQ(keys[0].max_places, 0);
  EXPECT_EQ(keys[1].name, "team");
  EXPECT_TRUE(keys[1].may(KeyScope::kInference));
  EXPECT_TRUE(keys[1].may(KeyScope::kProfiling));
  EXPECT_FALSE(keys[1].may(KeyScope::kMetrics));
  EXPECT_EQ(keys[1].requests_per_minute, 60);
  EXPECT_EQ(keys[1].tokens_per_minute, 1000);
  EXPECT_EQ(keys[1].max_places, 4);
  EXPECT_EQ(keys[1].min_priority, -1);
  EXPECT_EQ(keys[1].max_priority, 9);
  EXPECT_FALSE(keys[2].may(KeyScope::kInference));
}

TEST(ApiKeyFile, ErrorsNameTheLineAndNotTheKey) {
  EXPECT_THAT(error_of("# nothing\n"), HasSubstr("no API key"));
  for (const auto& [field, part] : {std::pair("quota=1", "unknown field 'quota'"),
                                    {"max_places=0", "at least 1"},
                                    {"max_places=x", "found 'x'"},
                                    {"requests_per_minute=-5", "at least 1"},
                                    {"scopes=admin", "found 'admin'"},
                                    {"another", "FIELD=VALUE"},
                                    {"min_priority=3 max_priority=2", "over max_priority"}}) {
    const std::string message = error_of(std::string("ok\nhush ") + field);
    EXPECT_THAT(message, HasSubstr("keys, line 2: "));
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_EQ(message.find("hush"), std::string::npos);
  }
}

TEST(ApiKeys, FindTheirCaller) {
  ApiKeys keys(parse("a name=first\nb name=second"), false);
  EXPECT_EQ(keys.find("Bearer b")->key().name, "second");
  EXPECT_EQ(keys.find("bearer  a ")->key().name, "first");
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer c", "Basic a", "a", "Bearer ab"}) {
    EXPECT_EQ(keys.find(wrong), nullptr) << wrong;
  }
  EXPECT_FALSE(keys.protects_metrics());
  keys.set(parse("c name=third\nd scopes=metrics"));
  EXPECT_EQ(keys.find("Bearer a"), nullptr);
  EXPECT_EQ(keys.find("Bearer c")->key().name, "third");
  EXPECT_TRUE(keys.protects_metrics());
  const ApiKeys none({}, false);
  ASSERT_NE(none.find(""), nullptr);
  EXPECT_EQ(none.find("")->key().name, "");
  EXPECT_FALSE(none.shares_cache());
}

TEST(ApiKeys, SaltTheCacheApart) {
  const std::vector<ApiKey> two = parse("a\nb");
  const ApiKeys shared(two, false);
  EXPECT_TRUE(shared.shares_cache());
  EXPECT_EQ(shared.find("Bearer a")->cache_salt("mine"), "mine");
  const ApiKeys apart(two, true);
  EXPECT_FALSE(apart.shares_cache());
  const std::string salt = apart.find("Bearer a")->cache_salt("");
  EXPECT_NE(salt, apart.find("Bearer b")->cache_salt(""));
  EXPECT_NE(salt, apart.find("Bearer a")->cache_salt("mine"));
  EXPECT_EQ(salt, ApiKeys(two, true).find("Bearer a")->cache_salt(""));
}

TEST(ApiKeys, QuotasFillUpAgainWithinAMinute) {
  const ApiKey key = parse("a requests_per_minute=2 tokens_per_minute=100")[0];
  KeyUsage usage;
  KeyUsage::Clock::time_point now = KeyUsage::Clock::now();
  EXPECT_EQ(usage.try_request(key, now), 0);
  EXPECT_EQ(usage.try_request(key, now), 0);
  EXPECT_EQ(usage.try_request(key, now), 30);
  now += seconds(29);
  EXPECT_GT(usage.try_request(key, now), 0);
  now += seconds(1);
  EXPECT_EQ(usage.try_request(key, now), 0);
  // An answer may cost more than is left; what comes next waits for it.
  now += seconds(60);
  usage.spend_tokens(key, 150, now);
  EXPECT_EQ(usage.try_request(key, now), 31);
  now += seconds(31);
  EXPECT_EQ(usage.try_request(key, now), 0);
}

TEST(ApiKeys, UsageOutlivesAReload) {
  ApiKeys keys(parse("a requests_per_minute=1"), false);
  EXPECT_EQ(keys.find("Bearer a")->try_request(), 0);
  EXPECT_GT(keys.find("Bearer a")->try_request(), 0);
  keys.set(parse("b\na requests_per_minute=1"));
  EXPECT_GT(keys.find("Bearer a")->try_request(), 0);
  EXPECT_EQ(keys.find("Bearer b")->try_request(), 0);
}

TEST(ApiKeys, PlacesAreTheServersAndTheKeys) {
  const ApiKeys keys(parse("a max_places=3\nb"), false);
  const CallerPtr a = keys.find("Bearer a");
  const CallerPtr b = keys.find("Bearer b");
  Admission server(5);
  Places first;
  EXPECT_EQ(first.resize(&server, *a, 1), Places::Outcome::kTaken);
  EXPECT_EQ(first.resize(&server, *a, 4), Places::Outcome::kShareUsed);
  EXPECT_EQ(first.resize(&server, *a, 3), Places::Outcome::kTaken);
  {
    Places second;
    EXPECT_EQ(second.resize(&server, *a, 1), Places::Outcome::kShareUsed);
    EXPECT_EQ(second.resize(&server, *b, 2), Places::Outcome::kTaken);
    EXPECT_TRUE(server.is_full());
    EXPECT_EQ(second.resize(&server, *b, 3), Places::Outcome::kServerFull);
  }
  Places third;
  EXPECT_EQ(third.resize(&server, *b, 2), Places::Outcome::kTaken);
  first.give_back();
  EXPECT_EQ(third.resize(&server, *b, 5), Places::Outcome::kTaken);
}

}  // namespace
}  // namespace atom::server
