#include "loader/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "loader/testing/write_safetensors.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::HasSubstr;
using testing::make_tensor;
using testing::safetensors_bytes;

Result<std::vector<TensorInfo>> parse(const std::string& bytes) {
  return parse_safetensors_header(bytes, bytes.size(), "x.safetensors");
}

// The message for a header with `num_data_bytes` of data behind it.
std::string error_of(const std::string& header, size_t num_data_bytes) {
  const auto result = parse(safetensors_bytes(header, std::string(num_data_bytes, 'x')));
  return result.ok() ? "no error" : result.status().message();
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = safetensors_bytes({{"b", make_tensor({2, 1}, DType::kFloat32, {1, 2})},
                                               {"a", make_tensor({3}, DType::kBFloat16, {1, 2, 3})},
                                               {"empty", Tensor::empty({0, 4}, DType::kFloat16)}});
  const auto tensors = parse(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 3u);
  const TensorInfo& b = (*tensors)[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kFloat32);
  EXPECT_EQ(b.shape, (Shape{2, 1}));
  EXPECT_EQ(b.num_bytes, 8u);
  float value = 0;
  std::memcpy(&value, bytes.data() + b.offset + 4, sizeof(value));
  EXPECT_EQ(value, 2.0f);
  EXPECT_EQ((*tensors)[1].name, "a");
  EXPECT_EQ((*tensors)[1].offset, b.offset + 8);
  EXPECT_EQ((*tensors)[2].num_bytes, 0u);
}

TEST(Safetensors, ReadsScalarsAndDtypesItCannotComputeWith) {
  const auto tensors =
      parse(safetensors_bytes(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                              R"("f":{"dtype":"F4","shape":[3,2],"data_offsets":[8,11]}})",
                              std::string(11, 'x')));
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_EQ((*tensors)[0].shape.rank(), 0);
  EXPECT_FALSE((*tensors)[0].dtype.has_value());
  EXPECT_EQ((*tensors)[1].dtype_name, "F4");
  EXPECT_EQ((*tensors)[1].num_bytes, 3u);
}

TEST(Safetensors, AcceptsNoTensorsAtAll) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).ok());
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string bytes =
      safetensors_bytes({{"weight", make_tensor({4}, DType::kFloat32, {1, 2, 3, 4})}});
  TemporaryFolder folder;
  for (size_t size = 0; size < bytes.size(); ++size) {
    testing::write_file(folder.file("x"), bytes.substr(0, size));
    EXPECT_FALSE(read_safetensors_header(folder.file("x"), nullptr).ok()) << size;
  }
  testing::write_file(folder.file("x"), bytes);
  uint64_t file_size = 0;
  EXPECT_TRUE(read_safetensors_header(folder.file("x"), &file_size).ok());
  EXPECT_EQ(file_size, bytes.size());
}

TEST(Safetensors, RefusesAnOversizedHeaderLength) {
  std::string bytes = safetensors_bytes("{}", "");
  for (uint64_t length : {uint64_t{3}, uint64_t{1} << 20, uint64_t{1} << 40, UINT64_MAX}) {
    std::memcpy(bytes.data(), &length, sizeof(length));
    EXPECT_FALSE(parse(bytes).ok()) << length;
  }
  EXPECT_THAT(parse(bytes).status().message(), HasSubstr("over the format's limit"));
}

TEST(Safetensors, RefusesOverlapGapAndTail) {
  const std::string first = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  EXPECT_THAT(error_of(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
              HasSubstr("tensor 'b': its data overlaps"));
  EXPECT_THAT(error_of(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
              HasSubstr("overlaps"));
  EXPECT_THAT(error_of(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9),
              HasSubstr("1 bytes before its data belong to no tensor"));
  EXPECT_THAT(error_of(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 9),
              HasSubstr("1 bytes at the end belong to no tensor"));
  EXPECT_THAT(error_of(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 7),
              HasSubstr("tensor 'b': data ends at byte 8 of 7"));
}

TEST(Safetensors, RefusesSizesThatDoNotMakeTheShape) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(
        R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  EXPECT_THAT(error_of(one("\"F32\"", "[2]", "[0,4]"), 4),
              HasSubstr("4 bytes of data do not make [2] elements of F32"));
  EXPECT_THAT(error_of(one("\"F4\"", "[3]", "[0,1]"), 1), HasSubstr("do not make"));
  EXPECT_THAT(error_of(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0),
              HasSubstr("do not make"));
  EXPECT_THAT(error_of(one("\"F33\"", "[1]", "[0,4]"), 4), HasSubstr("'dtype'"));
  EXPECT_THAT(error_of(one("7", "[1]", "[0,4]"), 4), HasSubstr("'dtype'"));
  for (const char* shape : {"[-1]", "[1.5]", "3", "[\"1\"]", "[18446744073709551615]", "[[1]]"}) {
    EXPECT_THAT(error_of(one("\"F32\"", shape, "[0,4]"), 4), HasSubstr("'shape'")) << shape;
  }
  EXPECT_THAT(error_of(one("\"U8\"", "[1,1,1,1,1,1,1]", "[0,1]"), 1), HasSubstr("7 dimensions"));
  for (const char* offsets : {"[4,0]", "[0]", "[0,4,4]", "[-4,0]", "4", "[0.0,4.0]"}) {
    EXPECT_THAT(error_of(one("\"F32\"", "[1]", offsets), 4), HasSubstr("'data_offsets'"))
        << offsets;
  }
}

TEST(Safetensors, RefusesBadNamesAndStructure) {
  const std::string rest = R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_EQ(error_of("{\"a" + rest, 1), "no error");
  EXPECT_THAT(error_of("{\"a\xff" + rest, 1), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of("{\"" + rest, 1), HasSubstr("expected a name"));
  EXPECT_THAT(error_of("{\"a\\u0000" + rest, 1), HasSubstr("expected a name"));
  EXPECT_THAT(error_of("{\"" + std::string(2000, 'a') + rest, 1), HasSubstr("expected a name"));
  EXPECT_THAT(error_of(R"({"a":{},"a":{}})", 0), HasSubstr("duplicate key"));
  EXPECT_THAT(error_of(R"({"a":{}})", 0), HasSubstr("expected an object of"));
  EXPECT_THAT(error_of(R"({"a":3})", 0), HasSubstr("expected an object of"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"x":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of("{\"a\":", 0), HasSubstr("invalid JSON"));
}

TEST(Safetensors, NamesAMissingFile) {
  const auto result = read_safetensors_header("/nowhere/x.safetensors", nullptr);
  EXPECT_THAT(result.status().message(), HasSubstr("/nowhere/x.safetensors: no such file"));
}

}  // namespace
}  // namespace atom
