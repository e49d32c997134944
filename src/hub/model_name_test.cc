#include "hub/model_name.h"

#include <gtest/gtest.h>

namespace atom::hub {
namespace {

TEST(ModelName, NameAndRevision) {
  const auto plain = parse_model_name("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->name, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain->revision, "");
  const auto revised = parse_model_name("a_b/c.d@refs/pr/3");
  ASSERT_TRUE(revised);
  EXPECT_EQ(revised->name, "a_b/c.d");
  EXPECT_EQ(revised->revision, "refs/pr/3");
  EXPECT_EQ(revised->to_string(), "a_b/c.d@refs/pr/3");
}

TEST(ModelName, WhatIsNoName) {
  for (const char* text :
       {"",         "gpt2",       "/a/b",          "./a",        "../a",      "a/b/c",
        "a/",       "/b",         "a/..",          "a/.hidden",  "a--b/c",    "a/b@",
        "a/b@../x", "a/b@/x",     "a/b@x//y",      "a/b@x/",     "a/b@.git",  "a/b c",
        "~/model",  "-a/b",       "a/b@c@d",       "a/b\n",      "a\\b",      "a/b?x",
        "a/b%2e",   "a/b@x/../y", "models/x/y.gg", "a/\xc3\xa4", "C:/windows"}) {
    EXPECT_FALSE(parse_model_name(text)) << text;
  }
  EXPECT_FALSE(parse_model_name("a/" + std::string(97, 'b')));
  EXPECT_FALSE(parse_model_name("a/b@" + std::string(201, 'b')));
  EXPECT_FALSE(parse_model_name(std::string("a/b\0c", 5)));
}

TEST(ModelName, TheRevisionToTake) {
  EXPECT_EQ(with_revision({"a/b", ""}, "")->revision, "main");
  EXPECT_EQ(with_revision({"a/b", ""}, "v1")->revision, "v1");
  EXPECT_EQ(with_revision({"a/b", "v1"}, "")->revision, "v1");
  EXPECT_EQ(with_revision({"a/b", "v1"}, "v1")->revision, "v1");
  EXPECT_FALSE(with_revision({"a/b", "v1"}, "v2").ok());
  EXPECT_FALSE(with_revision({"a/b", ""}, "../x").ok());
}

TEST(ModelName, Commits) {
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789abcdef0123456789abcdef0123456"));
}

}  // namespace
}  // namespace atom::hub
