#include "tests/support/synthetic_checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tensor/numeric.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr size_t kMaxSize = size_t{64} << 20;

// The bf16 values of a tensor, looked up in whichever file of the folder holds it.
std::vector<float> tensor_values(const std::string& folder, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string content = read_file(entry.path().string(), kMaxSize).value();
    uint64_t header_size = 0;
    std::memcpy(&header_size, content.data(), 8);
    const Json header = parse_json(content.substr(8, header_size), name).value();
    if (!header.contains(name)) continue;
    if (header.at(name).at("dtype") != "BF16") return {};
    const size_t begin = header.at(name).at("data_offsets").at(0);
    const size_t end = header.at(name).at("data_offsets").at(1);
    std::vector<BFloat16> stored((end - begin) / 2);
    std::memcpy(stored.data(), content.data() + 8 + header_size + begin, end - begin);
    std::vector<float> values;
    for (const BFloat16 value : stored) values.push_back(to_float(value));
    return values;
  }
  return {};
}

// The reference's own account of the first tensors of each case.
TEST(SyntheticCheckpoint, MatchesTheFingerprintsOfEveryGoldenCase) {
  for (const std::string& case_folder : golden_case_folders()) {
    SCOPED_TRACE(case_folder);
    const TemporaryFolder out;
    const Status status = materialize_checkpoint(case_folder, out.path());
    ASSERT_TRUE(status.ok()) << status.message();
    const Json golden = read_json_file(case_folder + "/golden.json").value();
    if (!golden.at("quant").is_null()) continue;  // fingerprints are of dequantized values
    int num_compared = 0;
    for (const auto& [name, fingerprint] : golden.at("fingerprints").items()) {
      const std::vector<float> values = tensor_values(out.path(), name);
      if (values.empty()) continue;
      ++num_compared;
      double sum = 0;
      for (const float value : values) sum += value;
      EXPECT_NEAR(sum, fingerprint.at("sum").get<double>(), 1e-6) << name;
      const auto first = fingerprint.at("first").get<std::vector<float>>();
      for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(values[i], first[i]) << name;
    }
    EXPECT_GT(num_compared, 0);
  }
}

// XXH3 of the files that the generator's reference implementation writes, byte for byte.
TEST(SyntheticCheckpoint, WritesTheBytesOfTheReference) {
  const std::map<std::string, uint64_t> expected = {
      {"llama/config.json", 0x8b090a5f36b3abb7u},
      {"llama/model.safetensors", 0xf166780469c332cdu},
      {"llama3-rope/config.json", 0x504a0c59def58357u},
      {"llama3-rope/model-00001-of-00002.safetensors", 0xb40031e30e25b616u},
      {"llama3-rope/model-00002-of-00002.safetensors", 0x3999073bc1bfe657u},
      {"llama3-rope/model.safetensors.index.json", 0x947a8e81d32f0f21u},
      {"qwen3/config.json", 0xc3541958892fb0abu},
      {"qwen3/model.safetensors", 0x84762c217528182bu},
  };
  std::map<std::string, uint64_t> found;
  for (const char* name : {"llama", "llama3-rope", "qwen3"}) {
    const TemporaryFolder out;
    ASSERT_TRUE(
        materialize_checkpoint(std::string(ATOM_TEST_GOLDEN_DIR "/") + name, out.path()).ok());
    for (const auto& entry : std::filesystem::directory_iterator(out.path())) {
      const std::string content = read_file(entry.path().string(), kMaxSize).value();
      found[fmt::format("{}/{}", name, entry.path().filename().string())] =
          XXH3_64bits(content.data(), content.size());
    }
  }
  EXPECT_EQ(found, expected);
}

std::string error_of(const std::string& checkpoint) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/config.json") << "{}";
  std::ofstream(folder.path() + "/checkpoint.json") << checkpoint;
  const TemporaryFolder out;
  return materialize_checkpoint(folder.path(), out.path()).message();
}

TEST(SyntheticCheckpoint, RefusesADescriptionThatItDoesNotKnow) {
  EXPECT_NE(error_of("{}").find("seed"), std::string::npos);
  const std::string tensor =
      R"({{"seed": 1, "shards": 1, "tensors": {{"w": {{"dtype": "{}", "shape": [{}],
          "gen": {{"kind": "{}"}}}}}}}})";
  const auto with = [&](const char* dtype, const char* shape, const char* kind) {
    return error_of(fmt::format(fmt::runtime(tensor), dtype, shape, kind));
  };
  EXPECT_EQ(with("uint8", "4", "byte"), "");
  EXPECT_NE(with("float4", "4", "byte").find("float4"), std::string::npos);
  EXPECT_NE(with("uint8", "4", "noise").find("noise"), std::string::npos);
  EXPECT_NE(with("uint8", "4000000000, 4000000000", "byte").find("elements"), std::string::npos);
}

}  // namespace
}  // namespace atom
