// Checkpoints of Kimi-K2's kind: routed experts in a format of their own beside shared experts and
// attention in another. What is computed is what the same values stored as floats give.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tensor/float8.h"
#include "tensor/numeric.h"
#include "tests/golden/golden_runner.h"
#include "tests/golden/test_device.h"
#include "tests/support/golden_case.h"
#include "tests/support/stored_tensor.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/tensor_file.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr int64_t kGroup = 32;
constexpr std::array<float, 8> kFloat4Values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
const std::string kShared = "model.layers.1.mlp.shared_experts.";

// A linear layer's weight [rows, columns], which encoders replace by what their codes stand for.
struct Weight {
  std::string module;
  int64_t rows, columns;
  std::vector<float> values;

  std::span<float> group(int64_t i, int64_t size) {
    return std::span(values).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size));
  }
};

using Tensors = std::vector<StoredTensor>;

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// "pack-quantized" of compressed-tensors: eight codes, each 8 more than its value, in a word.
Tensors encode_int4(Weight& weight) {
  std::string words, scales, shape;
  for (int64_t g = 0; g < weight.rows * weight.columns / kGroup; ++g) {
    const std::span<float> group = weight.group(g, kGroup);
    const auto stored_scale = from_float<BFloat16>(largest_magnitude(group) / 7.5f);
    const float scale = to_float(stored_scale);
    append_value(scales, stored_scale);
    uint32_t word = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      const float code = std::clamp(std::nearbyint(group[i] / scale), -8.0f, 7.0f);
      group[i] = code * scale;
      word |= static_cast<uint32_t>(code + 8) << (4 * (i % 8));
      if (i % 8 == 7) append_value(words, std::exchange(word, 0));
    }
  }
  append_value(shape, weight.rows);
  append_value(shape, weight.columns);
  return {{weight.module + ".weight_packed", "I32", {weight.rows, weight.columns / 8}, words},
          {weight.module + ".weight_scale", "BF16", {weight.rows, weight.columns / kGroup}, scales},
          {weight.module + ".weight_shape", "I64", {2}, shape}};
}

// The low half of a byte is the first of two codes, a scale's byte its exponent plus 127.
Tensors encode_mxfp4(Weight& weight) {
  std::string bytes, scales;
  for (int64_t g = 0; g < weight.rows * weight.columns / kGroup; ++g) {
    const std::span<float> group = weight.group(g, kGroup);
    const int exponent = std::ilogb(largest_magnitude(group)) - 2;
    append_value(scales, static_cast<uint8_t>(exponent + 127));
    uint8_t byte = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      const float wanted = std::abs(std::ldexp(group[i], -exponent));
      const auto nearest = std::ranges::min_element(
          kFloat4Values, {}, [&](float value) { return std::abs(value - wanted); });
      const bool is_negative = group[i] < 0;
      const auto code =
          static_cast<uint8_t>((nearest - kFloat4Values.begin()) | (is_negative << 3));
      group[i] = std::ldexp(is_negative ? -*nearest : *nearest, exponent);
      byte = static_cast<uint8_t>(i % 2 == 0 ? code : byte | code << 4);
      if (i % 2 == 1) append_value(bytes, byte);
    }
  }
  return {{weight.module + ".weight", "U8", {weight.rows, weight.columns / 2}, bytes},
          {weight.module + ".weight_scale", "U8", {weight.rows, weight.columns / kGroup}, scales}};
}

// A scale for each row.
Tensors encode_fp8(Weight& weight) {
  std::string codes, scales;
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::span<float> values = weight.group(row, weight.columns);
    const float scale = largest_magnitude(values) / 448;
    append_value(scales, scale);
    for (float& value : values) {
      const auto code = from_float<Float8E4M3>(value / scale);
      append_value(codes, code);
      value = to_float(code) * scale;
    }
  }
  return {{weight.module + ".weight", "F8_E4M3", {weight.rows, weight.columns}, codes},
          {weight.module + ".weight_scale", "F32", {weight.rows, 1}, scales}};
}

using Encode = Tensors(Weight& weight);

struct Mixture {
  const char* name;
  const char* quantization;  // "quantization_config"
  Encode* routed;
  Encode* shared;  // null: as they are
};

const Mixture kMixtures[] = {
    {"Int4BesideFloats",
     R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
         "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
           "output_activations": null,
           "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
             "symmetric": true, "dynamic": false, "actorder": null}}},
         "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
           "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})",
     encode_int4,
     nullptr},
    {"Mxfp4BesideFloats",
     R"({"quant_method": "quark", "export": {"weight_format": "real_quantized"},
         "global_quant_config": {
           "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
             "scale_format": "e8m0", "is_dynamic": false},
           "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
             "scale_format": "e8m0", "is_dynamic": true}},
         "exclude": ["lm_head", "*self_attn*", "*mlp.gate", "*shared_experts.*",
           "*mlp.gate_proj", "*mlp.up_proj", "*mlp.down_proj"]})",
     encode_mxfp4,
     nullptr},
    {"Mxfp4BesideFp8",
     R"({"quant_method": "quark",
         "layer_quant_config": {"*shared_experts*": {
           "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}},
         "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group",
           "group_size": 32, "scale_format": "e8m0"}},
         "exclude": ["lm_head", "*self_attn*", "*mlp.gate", "*mlp.gate_proj", "*mlp.up_proj",
           "*mlp.down_proj"]})",
     encode_mxfp4,
     encode_fp8},
};

// A small DeepSeek V3 routed as Kimi-K2 is, twice: with codes, and with what they stand for.
class MixedExperts : public testing::TestWithParam<Mixture> {
 protected:
  MixedExperts() {
    const std::string folder = golden_folder() + "/deepseek-v3";
    golden_ = load_golden_case(folder).value();
    const TemporaryFolder source;
    CHECK(materialize_checkpoint(folder, source.path()).ok());
    const TensorFile file = TensorFile::open(source.file("model.safetensors")).value();
    const Json description = read_json_file(folder + "/checkpoint.json").value();
    for (const auto& [name, tensor] : description.at("tensors").items()) {
      if (!name.starts_with("model.layers.3.")) add(file, name);
    }
    Json config = read_json_file(folder + "/config.json").value();
    config.update({{"model_type", "kimi_k2"}, {"n_group", 1}, {"topk_group", 1}});
    config["num_nextn_predict_layers"] = 0;
    CHECK(write_text(floats_.file("config.json"), config.dump()).ok());
    config["quantization_config"] = Json::parse(GetParam().quantization);
    CHECK(write_text(mixed_.file("config.json"), config.dump()).ok());
    CHECK(write_safetensors(floats_.file("model.safetensors"), float_tensors_).ok());
    write_mixed(mixed_tensors_);
  }

  void add(const TensorFile& file, const std::string& name) {
    const std::vector<int64_t>& shape = file.shape(name);
    const std::vector<double> wide = file.in_double(name);
    std::vector<float> values(wide.begin(), wide.end());
    Encode* encode = name.find(".mlp.experts.") != std::string::npos      ? GetParam().routed
                     : name.find(".shared_experts.") != std::string::npos ? GetParam().shared
                                                                          : nullptr;
    if (encode == nullptr) {
      float_tensors_.push_back({name, "F32", shape, bytes_of(values)});
      mixed_tensors_.push_back(float_tensors_.back());
      return;
    }
    const std::string module = name.substr(0, name.rfind('.'));
    Weight weight = {module, shape[0], shape[1], std::move(values)};
    for (StoredTensor& tensor : encode(weight)) mixed_tensors_.push_back(std::move(tensor));
    float_tensors_.push_back({name, "F32", shape, bytes_of(weight.values)});
  }

  void write_mixed(const Tensors& tensors) const {
    CHECK(write_safetensors(mixed_.file("model.safetensors"), tensors).ok());
  }

  // Of all prompts and positions, with activations as they are.
  Result<std::vector<float>> logits(const std::string& folder,
                                    const ParallelConfig& parallel = {}) const {
    EngineConfig engine;
    engine.model.dtype = DType::kFloat32;
    engine.model.emulate_quantized_activations = false;
    engine.parallel = parallel;
    ASSIGN_OR_RETURN(const std::unique_ptr<GoldenRunner> runner,
                     GoldenRunner::create(folder, engine));
    std::vector<GoldenRunner::Request> requests;
    for (const GoldenPrompt& prompt : golden_.prompts) requests.push_back({prompt.ids});
    std::vector<float> all;
    for (const GoldenResult& result : runner->run(requests, {}, /*max_tokens=*/1)) {
      for (const auto& [position, row] : result.logits)
        all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  std::string error_of(const Tensors& tensors) const {
    write_mixed(tensors);
    return logits(mixed_.path()).status().message();
  }

  GoldenCase golden_;
  Tensors float_tensors_, mixed_tensors_;
  const TemporaryFolder floats_, mixed_;
};

TEST_P(MixedExperts, LogitsAreThoseOfTheSameValuesAsFloats) {
  const Result<std::vector<float>> expected = logits(floats_.path());
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const int size : {1, 2}) {
    if (size > 1 && golden_device() != DeviceChoice::kCpu)
      continue;  // ranks are threads of the CPU
    for (const bool spreads_experts : {false, true}) {
      if (spreads_experts && size == 1) continue;
      SCOPED_TRACE(fmt::format("{} ranks{}", size, spreads_experts ? ", experts spread" : ""));
      ParallelConfig parallel;
      parallel.tensor_parallel_size = size;
      parallel.enable_expert_parallel = spreads_experts;
      const Result<std::vector<float>> got = logits(mixed_.path(), parallel);
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_LE(relative_error(*got, *expected), kFloat32Bound);
    }
  }
}

TEST_P(MixedExperts, AMissingTensorOfTheSharedExpertsIsNamed) {
  Tensors tensors = mixed_tensors_;
  std::erase_if(tensors, [](const StoredTensor& tensor) {
    return tensor.name == kShared + "up_proj.weight";
  });
  EXPECT_NE(error_of(tensors).find(kShared + "gate_up_proj.weight (shard 'up')"), std::string::npos)
      << error_of(tensors);
}

TEST_P(MixedExperts, ASurplusTensorOfTheSharedExpertsIsNamed) {
  // The second is what a quantized weight of the other kind has.
  for (const char* name : {"gate_proj.weight_too_many", "gate_proj.weight_packed"}) {
    Tensors tensors = mixed_tensors_;
    tensors.push_back({kShared + name, "F32", {1}, std::string(4, '\0')});
    EXPECT_NE(error_of(tensors).find(kShared + name), std::string::npos) << error_of(tensors);
  }
}

INSTANTIATE_TEST_SUITE_P(Kimi, MixedExperts, testing::ValuesIn(kMixtures), [](const auto& param) {
  return std::string(param.param.name);
});

}  // namespace
}  // namespace atom
