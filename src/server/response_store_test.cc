#include "server/response_store.h"

#include <gtest/gtest.h>

namespace atom::server {
namespace {

Caller make_caller() {
  return Caller(ApiKey{}, "", std::make_shared<KeyUsage>());
}

TEST(ResponseStore, GivesBackToWhoPut) {
  ResponseStore store(1 << 20);
  const Caller a = make_caller();
  const Caller b = make_caller();
  store.put("resp_1", a, "[1]");
  EXPECT_EQ(store.get("resp_1", a), "[1]");
  EXPECT_EQ(store.get("resp_1", b), std::nullopt);
  EXPECT_EQ(store.get("resp_2", a), std::nullopt);
  // Ids are each caller's own.
  store.put("resp_1", b, "[2]");
  store.put("resp_1", b, "[3]");
  EXPECT_EQ(store.get("resp_1", a), "[1]");
  EXPECT_EQ(store.get("resp_1", b), "[3]");
  // The same key after its limits were read again.
  EXPECT_EQ(store.get("resp_1", Caller(ApiKey{}, "", a.usage())), "[1]");
}

TEST(ResponseStore, TheLongestUnusedGo) {
  ResponseStore store(4000);
  const Caller caller = make_caller();
  const std::string text(500, 'x');
  for (const char* id : {"1", "2", "3"}) store.put(id, caller, text);
  EXPECT_TRUE(store.get("1", caller).has_value());
  store.put("4", caller, text);
  EXPECT_TRUE(store.get("1", caller).has_value());
  EXPECT_FALSE(store.get("2", caller).has_value());
  EXPECT_TRUE(store.get("3", caller).has_value());
  EXPECT_LE(store.num_bytes(), 4000u);
}

TEST(ResponseStore, HoldsNoMoreThanItsBytes) {
  ResponseStore store(10'000);
  const Caller caller = make_caller();
  store.put("large", caller, std::string(10'000, 'x'));
  EXPECT_FALSE(store.get("large", caller).has_value());
  for (int i = 0; i < 1000; ++i) {
    store.put(std::to_string(i), caller, std::string(static_cast<size_t>(i % 700), 'x'));
    ASSERT_LE(store.num_bytes(), 10'000u);
  }
  EXPECT_TRUE(store.get("999", caller).has_value());
  EXPECT_FALSE(store.get("0", caller).has_value());
  EXPECT_FALSE(ResponseStore(0).is_on());
}

}  // namespace
}  // namespace atom::server
