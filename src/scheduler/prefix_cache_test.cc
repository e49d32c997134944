#include "scheduler/prefix_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace atom {
namespace {

using Tokens = std::vector<int32_t>;

const CacheSalt kNoSalt = std::make_shared<const std::string>();
const CacheSalt kSalt = std::make_shared<const std::string>("tenant");

PrefixKey key(BlockHash hash, const Tokens& tokens, ContentId parent = kRootContent) {
  return {.hash = hash, .parent = parent, .salt = kNoSalt, .token_ids = tokens};
}

TEST(PrefixCacheTest, FindsWhatWasInserted) {
  PrefixCache cache(8, 2);
  const Tokens tokens = {1, 2};
  EXPECT_EQ(cache.find(key({5, 6}, tokens)), -1);
  const ContentId content = cache.insert(3, key({5, 6}, tokens));
  EXPECT_EQ(cache.find(key({5, 6}, tokens)), 3);
  EXPECT_EQ(cache.content(3), content);
  EXPECT_NE(content, kRootContent);
  EXPECT_EQ(cache.num_cached(), 1);
  cache.erase(3);
  EXPECT_EQ(cache.find(key({5, 6}, tokens)), -1);
  EXPECT_FALSE(cache.contains(3));
  EXPECT_EQ(cache.num_cached(), 0);
}

TEST(PrefixCacheTest, AnEqualHashIsNotBelieved) {
  PrefixCache cache(8, 2);
  const Tokens tokens = {1, 2};
  const Tokens other = {1, 3};
  const ContentId content = cache.insert(0, key({5, 6}, tokens));
  EXPECT_EQ(cache.find(key({5, 6}, other)), -1) << "other tokens";
  EXPECT_EQ(cache.find(key({5, 6}, tokens, content)), -1) << "another parent";
  const PrefixKey salted = {
      .hash = {5, 6}, .parent = kRootContent, .salt = kSalt, .token_ids = tokens};
  EXPECT_EQ(cache.find(salted), -1) << "another salt";
  EXPECT_EQ(cache.find(key({5, 7}, tokens)), -1) << "half the hash";
}

TEST(PrefixCacheTest, TheNewerOfTwoContentsWithOneHashStays) {
  PrefixCache cache(8, 2);
  const Tokens tokens = {1, 2};
  const Tokens other = {1, 3};
  cache.insert(0, key({5, 6}, tokens));
  cache.insert(1, key({5, 6}, other));
  EXPECT_EQ(cache.find(key({5, 6}, tokens)), -1);
  EXPECT_EQ(cache.find(key({5, 6}, other)), 1);
  EXPECT_FALSE(cache.contains(0));
  EXPECT_EQ(cache.num_cached(), 1);
}

TEST(PrefixCacheTest, AContentIdIsNeverUsedAgain) {
  PrefixCache cache(8, 2);
  const Tokens first = {1, 2};
  const Tokens second = {3, 4};
  const ContentId parent = cache.insert(0, key({5, 6}, first));
  cache.insert(1, key({7, 8}, second, parent));
  cache.erase(0);
  const ContentId again = cache.insert(0, key({5, 6}, first));
  EXPECT_EQ(cache.find(key({7, 8}, second, again)), -1);
  EXPECT_EQ(cache.find(key({7, 8}, second, parent)), 1);
}

TEST(PrefixCacheTest, ABucketHoldsMany) {
  PrefixCache cache(8, 2);
  const Tokens tokens = {1, 2};
  for (int32_t i = 0; i < 8; ++i) cache.insert(i, key({0, static_cast<uint64_t>(i)}, tokens));
  cache.erase(0);
  cache.erase(7);
  cache.erase(4);
  for (int32_t i = 0; i < 8; ++i) {
    const bool erased = i == 0 || i == 4 || i == 7;
    EXPECT_EQ(cache.find(key({0, static_cast<uint64_t>(i)}, tokens)), erased ? -1 : i);
  }
  cache.clear();
  EXPECT_EQ(cache.find(key({0, 1}, tokens)), -1);
  EXPECT_EQ(cache.num_cached(), 0);
}

TEST(PrefixCacheTest, TheHashCoversParentSaltAndTokens) {
  PrefixCache cache(8, 2);
  const Tokens tokens = {1, 2};
  const Tokens other = {2, 1};
  const BlockHash root = PrefixCache::hash_salt("");
  const BlockHash hash = cache.hash_block(root, tokens);
  EXPECT_EQ(hash, cache.hash_block(root, tokens));
  EXPECT_NE(hash, cache.hash_block(root, other));
  EXPECT_NE(hash, cache.hash_block(hash, tokens));
  EXPECT_NE(hash, cache.hash_block(PrefixCache::hash_salt("tenant"), tokens));
}

}  // namespace
}  // namespace atom
