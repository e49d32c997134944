#include "loader/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/testing/write_safetensors.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_tensor;
using testing::write_file;
using testing::write_safetensors;

constexpr const char* kIndex = "model.safetensors.index.json";

Tensor two() {
  return make_tensor({2}, DType::kFloat32, {1, 2});
}

std::string open_error(const TemporaryFolder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path());
  return checkpoint.ok() ? "no error" : checkpoint.status().message();
}

// Two files, a and b in the first, c in the second.
void write_sharded(const TemporaryFolder& folder) {
  write_safetensors(folder.file("m-1.safetensors"), {{"a", two()}, {"b", two()}});
  write_safetensors(folder.file("m-2.safetensors"), {{"c", two()}});
}

TEST(Checkpoint, OpensASingleFile) {
  TemporaryFolder folder;
  write_safetensors(folder.file("model.safetensors"), {{"a", two()}, {"b", two()}});
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->files().size(), 1u);
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->num_bytes(), 16u);
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("b")->info.shape, (Shape{2}));
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, OpensShards) {
  TemporaryFolder folder;
  write_sharded(folder);
  write_file(folder.file(kIndex),
             R"({"metadata":{"total_size":24},"weight_map":)"
             R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->files().size(), 2u);
  EXPECT_EQ(checkpoint->find("c")->file, 1);
}

TEST(Checkpoint, RefusesAnIndexThatDoesNotMatchTheFiles) {
  TemporaryFolder folder;
  write_sharded(folder);
  const auto error_with = [&](const std::string& weight_map) {
    write_file(folder.file(kIndex), "{\"weight_map\":" + weight_map + "}");
    return open_error(folder);
  };
  EXPECT_THAT(error_with(R"({"a":"m-1.safetensors","b":"m-1.safetensors","d":"m-2.safetensors"})"),
              HasSubstr("tensor 'd' is not in m-2.safetensors"));
  EXPECT_THAT(error_with(R"({"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"})"),
              HasSubstr("tensor 'a' is in m-1.safetensors, not in m-2.safetensors"));
  EXPECT_THAT(error_with(R"({"a":"m-1.safetensors","c":"m-2.safetensors"})"),
              HasSubstr("tensor 'b' of m-1.safetensors is not in the index"));
  EXPECT_THAT(error_with(R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-3.safetensors"})"),
              HasSubstr("names m-3.safetensors, which is not in the folder"));
}

TEST(Checkpoint, RefusesATensorInTwoShards) {
  TemporaryFolder folder;
  write_safetensors(folder.file("m-1.safetensors"), {{"a", two()}, {"b", two()}});
  write_safetensors(folder.file("m-2.safetensors"), {{"b", two()}});
  write_file(folder.file(kIndex),
             R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  EXPECT_THAT(open_error(folder), HasSubstr("tensor 'b' is both in"));
}

TEST(Checkpoint, RefusesABrokenShardBeforeAnythingIsLoaded) {
  TemporaryFolder folder;
  write_sharded(folder);
  write_file(folder.file("m-2.safetensors"), "short");
  write_file(folder.file(kIndex),
             R"({"weight_map":)"
             R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  EXPECT_THAT(open_error(folder), AllOf(HasSubstr("m-2.safetensors"), HasSubstr("truncated")));
}

TEST(Checkpoint, IndexNamesOnlyFilesOfTheFolder) {
  for (const char* file : {"\"../x.safetensors\"",
                           "\"/etc/x.safetensors\"",
                           "\"a/b.safetensors\"",
                           "\"a\\\\b.safetensors\"",
                           "\"x\\u0000.safetensors\"",
                           "\"..\"",
                           "\"\"",
                           "\".safetensors\"",
                           "\"passwd\"",
                           "7",
                           "null"}) {
    const auto map =
        parse_checkpoint_index(fmt::format(R"({{"weight_map":{{"a":{}}}}})", file), "index");
    EXPECT_THAT(map.status().message(), HasSubstr("must be the name of a .safetensors file"))
        << file;
  }
}

TEST(Checkpoint, RefusesAnIndexOfAnotherShape) {
  for (const char* text : {"{}",
                           "[]",
                           "3",
                           R"({"weight_map":[]})",
                           R"({"weight_map":{}})",
                           R"({"weight_map":null})",
                           R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})",
                           "{"}) {
    EXPECT_FALSE(parse_checkpoint_index(text, "index").ok()) << text;
  }
}

TEST(Checkpoint, SaysWhatTheFolderHoldsInstead) {
  TemporaryFolder folder;
  EXPECT_THAT(open_error(folder), HasSubstr("holds no weights at all"));
  write_file(folder.file("model.gguf"), "x");
  EXPECT_THAT(open_error(folder), HasSubstr("found model.gguf, which atom does not read"));
  write_file(folder.file("adapter_model.safetensors"), "x");
  EXPECT_THAT(open_error(folder), HasSubstr("found adapter_model.safetensors, which is no model"));
  EXPECT_THAT(Checkpoint::open(folder.file("absent")).status().message(),
              HasSubstr("no such folder"));
}

}  // namespace
}  // namespace atom
