// Draft layers of quantized checkpoints: quantized like the model, or stored as they were trained.
#include "runner/draft_quantization.h"
#include "runner/speculation_harness_test.h"
#include "tests/support/mtp_case.h"

namespace atom {
namespace {

using nlohmann::json;

// Codes of FP4 and the exponents of their groups in place of a weight.
void to_float4(const std::string& name, const json& weight, json* tensors) {
  const int64_t rows = weight.at("shape").at(0), size = weight.at("shape").at(1);
  (*tensors)[name] = {{"dtype", "uint8"}, {"shape", {rows, size / 2}}, {"gen", {{"kind", "byte"}}}};
  (*tensors)[name + "_scale"] = {
      {"dtype", "uint8"}, {"shape", {rows, size / 32}}, {"gen", {{"kind", "e8m0"}, {"base", 122}}}};
}

// DeepSeek-V3's golden case with feed-forwards in FP4, but for those of layers from `first_plain`
// on; `excluded`: what its configuration says of it.
void write_float4_case(int64_t first_plain,
                       const std::vector<std::string>& excluded,
                       const std::string& folder) {
  const std::string from = golden_folder() + "/deepseek-v3";
  json config = read_json(from + "/config.json");
  const json quark = read_json(golden_folder() + "/llama-quark-mxfp4/config.json");
  config["quantization_config"] = quark.at("quantization_config");
  config["quantization_config"]["exclude"] = excluded;
  json checkpoint = read_json(from + "/checkpoint.json"), tensors = json::object();
  for (const auto& [name, tensor] : checkpoint.at("tensors").items()) {
    const bool is_quantized = name.find(".mlp.") != std::string::npos &&
                              name.ends_with("proj.weight") &&
                              std::stoi(name.substr(sizeof "model.layers." - 1)) < first_plain;
    if (is_quantized) {
      to_float4(name, tensor, &tensors);
    } else {
      tensors[name] = tensor;
    }
  }
  checkpoint["tensors"] = tensors;
  write_head(config, checkpoint, folder);
}

Totals check_case(const std::string& folder) {
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kMtp, 1);
  config.model.model = folder;
  return check_drafts(config, requests_of(num_speculation_requests(), 29));
}

TEST(SpeculationQuantized, DraftLayersAreAsTheCheckpointStoresThem) {
  constexpr int64_t kNumLayers = 3;
  const std::vector<std::string> said = {"lm_head", "*self_attn*", "model.layers.3"};
  const std::vector<std::string> unsaid = {"lm_head", "*self_attn*"};
  for (const auto& excluded : {said, unsaid}) {
    const TemporaryFolder folder;
    ASSERT_NO_FATAL_FAILURE(write_float4_case(kNumLayers, excluded, folder.path()));
    const ModelConfig config = load_model_config(folder.path()).value();
    const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
    const QuantConfig stored = with_draft_layers_as_stored(config, checkpoint).quantization;
    EXPECT_TRUE(stored.scheme_of("model.layers.2.mlp.experts.0.up_proj").is_quantized());
    EXPECT_FALSE(stored.scheme_of("model.layers.3.mlp.experts.0.up_proj").is_quantized());
    EXPECT_GT(check_case(folder.path()).num_drafts, 400);
  }
}

TEST(SpeculationQuantized, DraftLayersWithScalesAreQuantized) {
  const TemporaryFolder float4, float8;
  ASSERT_NO_FATAL_FAILURE(
      write_float4_case(4, {"lm_head", "*self_attn*", "eh_proj"}, float4.path()));
  EXPECT_GT(check_case(float4.path()).num_drafts, 400);
  const Status made =
      materialize_with_mtp(golden_folder() + "/deepseek-v3-fp8-block", float8.path());
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_GT(check_case(float8.path()).num_drafts, 400);
}

TEST(SpeculationQuantized, APlanNeedsTheConfigurationAlone) {
  json file = read_json(golden_folder() + "/deepseek-v3-fp8-block/config.json");
  file["num_nextn_predict_layers"] = 1;
  const TemporaryFolder folder;
  std::ofstream(folder.file("config.json")) << file.dump();
  EngineConfig engine = crowded_with_drafts(SpeculativeMethod::kMtp, 1);
  engine.model.model = folder.path();
  const auto weights = [&](DraftHeadDType dtype) {
    engine.speculative.draft_head_dtype = dtype;
    const ModelConfig config = load_model_config(folder.path()).value();
    const Result<BuiltModel> built = build_model(resolve(engine, config).value());
    EXPECT_TRUE(built.ok()) << built.status().message();
    return built.ok() ? built->draft->resident_bytes() : 0;
  };
  // A code for each weight of the head and a scale for each of its 384 rows.
  EXPECT_EQ(weights(DraftHeadDType::kFloat8) - weights(DraftHeadDType::kModel), 384 * (192 + 4));
}

}  // namespace
}  // namespace atom
