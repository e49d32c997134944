// What released models take, from their config.json alone: docs/models.md says it, and this test
// holds it to that. With ATOM_WRITE_DOCS=1 it writes the file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/human.h"
#include "models/registry.h"
#include "runner/model_source.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr size_t kMaxFileSize = size_t{1} << 20;

constexpr const char* kHead =
    "# Released models\n"
    "\n"
    "What models take at their released sizes: weights as a GPU stores them with rope "
    "tables, the KV cache for each token of context (layers with a sliding window beside others "
    "keep only that, and do not count), and the recurrent state of a request. `tests/released` "
    "computes it from each model's `config.json` (in "
    "`tests/released/configs`) without any weight, by the code that `atom plan` plans "
    "memory with: `ATOM_WRITE_DOCS=1 build/release/tests/released/released_models_test` "
    "writes this file. \"As released\" is the format of the checkpoint; a dash is a "
    "format that the model is not computed in, or a number of ranks that it cannot be split "
    "over. \"Of 8\" is what each of 8 GPUs takes with `--tensor-parallel-size 8`.\n"
    "\n"
    "| model | architecture | as released | weights | of 8 | in bfloat16 | of 8 | with "
    "`--quantization fp8` | of 8 | KV per token, bfloat16 | of 8 | FP8 | state per request | of 8 "
    "|\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | "
    "---: "
    "|\n";

std::string text_of(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxFileSize);
  return text.ok() ? *text : "";
}

std::vector<std::filesystem::path> config_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(ATOM_RELEASED_CONFIGS)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct Sizes {
  std::string format;
  int64_t weights, kv_per_token, state;  // bytes
};

class ReleasedModel {
 public:
  explicit ReleasedModel(const std::filesystem::path& file)
      : name_(file.stem().string()), config_(Json::parse(text_of(file.string()))) {}

  // Of the model as its engine options and this change of config.json make it; with several ranks
  // of each.
  template <typename Change>
  Result<Sizes> sizes(EngineConfig engine,
                      Change&& change,
                      int num_ranks = 1,
                      DeviceType device = DeviceType::kCuda) const {
    Json config = config_;
    change(config);
    std::ofstream(folder_.file("config.json")) << config.dump();
    engine.model.model = folder_.path();
    ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(folder_.path()));
    ASSIGN_OR_RETURN(const ResolvedConfig resolved, resolve(engine, model));
    ParallelContext parallel;
    parallel.tensor_parallel_size = num_ranks;
    ASSIGN_OR_RETURN(const BuiltModel built, build_model(resolved, Device{device}, parallel));
    const QuantConfig& quantization = resolved.model.quantization;
    return Sizes{
        quantization.is_quantized() ? quantization.to_string() : dtype_name(resolved.dtype),
        built.model->resident_bytes(),
        built.storage.pool_bytes_per_token(),
        built.storage.bytes_per_slot()};
  }

  std::string row() const {
    const auto unchanged = [](Json&) {};
    const auto unquantized = [](Json& config) { config.erase("quantization_config"); };
    EngineConfig plain, float8, float8_cache;
    float8.model.quantization = QuantizationChoice::kFp8;
    float8_cache.cache.dtype = DType::kFloat8E4M3;
    const Result<Sizes> released = sizes(plain, unchanged);
    EXPECT_TRUE(released.ok()) << name_ << ": " << released.status().message();
    if (!released.ok()) return "";
    constexpr int kRanks = 8;
    const Result<Sizes> of_rank = sizes(plain, unchanged, kRanks);
    const Result<Sizes> small_cache = sizes(float8_cache, unchanged);
    return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                       name_,
                       config_.at("architectures").at(0).get<std::string>(),
                       released->format,
                       human_bytes(released->weights),
                       weights_of(of_rank),
                       weights_of(sizes(plain, unquantized)),
                       weights_of(sizes(plain, unquantized, kRanks)),
                       weights_of(sizes(float8, unquantized)),
                       weights_of(sizes(float8, unquantized, kRanks)),
                       human_bytes(released->kv_per_token),
                       of_rank.ok() ? human_bytes(of_rank->kv_per_token) : "–",
                       small_cache.ok() ? human_bytes(small_cache->kv_per_token) : "–",
                       state_of(released),
                       state_of(of_rank));
  }

 private:
  static std::string weights_of(const Result<Sizes>& sizes) {
    return sizes.ok() ? human_bytes(sizes->weights) : "–";
  }

  static std::string state_of(const Result<Sizes>& sizes) {
    if (!sizes.ok()) return "–";
    return sizes->state > 0 ? human_bytes(sizes->state) : "none";
  }

  const std::string name_;
  const Json config_;
  const TemporaryFolder folder_;
};

TEST(ReleasedModels, TakeWhatTheDocumentSays) {
  std::string document = kHead;
  for (const std::filesystem::path& file : config_files()) document += ReleasedModel(file).row();
  if (std::getenv("ATOM_WRITE_DOCS") != nullptr) std::ofstream(ATOM_MODELS_DOCUMENT) << document;
  EXPECT_EQ(text_of(ATOM_MODELS_DOCUMENT), document);
}

// Against what is published of them: parameters in billions, to the last digit that is given.
TEST(ReleasedModels, HaveTheirNumbersOfParameters) {
  struct Published {
    const char* name;
    double billions, digit;
  };
  constexpr Published kPublished[] = {
      {"Llama-3.1-8B", 8.03, 0.01},
      {"Llama-3.1-70B", 70.6, 0.1},
      {"Qwen3-8B", 8.2, 0.1},
      {"Qwen3-32B", 32.8, 0.1},
      {"Mixtral-8x7B", 46.7, 0.1},
      {"Mixtral-8x22B", 140.6, 0.1},
      {"Qwen3-30B-A3B", 30.5, 0.1},
      {"Qwen3-235B-A22B", 235.1, 0.1},
      {"Qwen3-Next-80B-A3B", 80, 1},
      {"gpt-oss-20b", 20.91, 0.01},
      {"gpt-oss-120b", 116.83, 0.01},
      {"DeepSeek-V2-Lite", 15.7, 0.1},
      {"DeepSeek-V2", 236, 1},
      {"DeepSeek-V3", 671, 1},
      {"GLM-5", 744, 1},
  };
  for (const Published& published : kPublished) {
    const ReleasedModel model(std::string(ATOM_RELEASED_CONFIGS "/") + published.name + ".json");
    const auto plain = [](Json& config) {
      // Without much of rope tables.
      config["max_position_embeddings"] = 128;
      config.erase("rope_scaling");
      config.erase("quantization_config");
    };
    // A GPU keeps some weights of latent attention twice.
    const Result<Sizes> sizes = model.sizes(EngineConfig(), plain, 1, DeviceType::kCpu);
    ASSERT_TRUE(sizes.ok()) << sizes.status().message();
    const double billions = static_cast<double>(sizes->weights) / 2 * 1e-9;
    EXPECT_NEAR(billions, published.billions, published.digit) << published.name;
  }
}

}  // namespace
}  // namespace atom
