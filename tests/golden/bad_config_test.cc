// Of every golden case: a key of config.json that is missing although the model needs it, of
// another type, or nonsense, is refused with the file's and the key's name before any weight is
// read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/registry.h"
#include "runner/model_source.h"
#include "tests/golden/header_folder.h"

namespace atom {
namespace {

constexpr const char* kNeeded[] = {
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"};

// Of some architectures.
struct Needed {
  const char* architecture;
  std::vector<const char*> keys;
};

const Needed kNeededBy[] = {
    {"DeepseekV2ForCausalLM",
     {"kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "moe_intermediate_size"}},
    {"DeepseekV32ForCausalLM", {"q_lora_rank", "index_topk", "index_n_heads", "index_head_dim"}},
    {"GlmMoeDsaForCausalLM", {"q_lora_rank", "index_topk", "index_n_heads", "index_head_dim"}},
};

struct Nonsense {
  const char* key;
  const char* values;  // a list in JSON
};

// What a case's config.json does not have is not asked of it.
constexpr Nonsense kNonsense[] = {
    {"architectures", R"([7, [], [7], {"a": 1}])"},
    {"vocab_size", R"([0, -1, 1.5, "many", [384], 1e12])"},
    {"hidden_size", R"([0, -64, 1.5, "wide", true])"},
    {"intermediate_size", R"([-1, "wide", {"a": 1}])"},
    {"num_hidden_layers", R"([0, -3, "three", 1e9])"},
    {"num_attention_heads", R"([0, -4, "four"])"},
    {"num_key_value_heads", R"([0, 3, -1, "two"])"},
    {"head_dim", R"([-2, 63, "x"])"},
    {"max_position_embeddings", R"([0, -1, "long"])"},
    {"rms_norm_eps", R"([-1, "small", [1e-6]])"},
    {"rope_theta", R"([0, -1, "x"])"},
    {"hidden_act", R"(["no_such_function", 7])"},
    {"tie_word_embeddings", R"([7, "yes"])"},
    {"torch_dtype", R"(["int3", 7])"},
    {"attention_bias", R"(["yes", 2])"},
    {"sliding_window", R"([-1, "x"])"},
    {"layer_types", R"([["full_attention"], 7, "full_attention"])"},
    {"partial_rotary_factor", R"([0, -0.5, 2.0, "x"])"},
    {"eos_token_id", R"([-1, "</s>", [1.5]])"},
    {"num_local_experts", R"([0, -1, "x", 1e9])"},
    {"num_experts", R"([-1, "x", 1e9])"},
    {"n_routed_experts", R"([0, -1, "x", 1e9])"},
    {"num_experts_per_tok", R"([0, -1, 1000, "x"])"},
    {"moe_intermediate_size", R"([0, -1, "x"])"},
    {"shared_expert_intermediate_size", R"([-1, "x"])"},
    {"n_shared_experts", R"([-1, "x"])"},
    {"n_group", R"([0, -1, 3, "x"])"},
    {"topk_group", R"([0, -1, 100, "x"])"},
    {"norm_topk_prob", R"([7, "yes"])"},
    {"routed_scaling_factor", R"(["x", [1]])"},
    {"scoring_func", R"(["no_such_function", 7])"},
    {"topk_method", R"(["no_such_method", 7])"},
    {"first_k_dense_replace", R"([-1, "x"])"},
    {"moe_layer_freq", R"([0, -1, "x"])"},
    {"decoder_sparse_step", R"([0, -1, "x"])"},
    {"mlp_only_layers", R"([[-1], "x", ["a"]])"},
    {"use_qk_norm", R"([7, "yes"])"},
    {"swiglu_limit", R"([-1, "x"])"},
    {"q_lora_rank", R"([-1, "x"])"},
    {"kv_lora_rank", R"([0, -1, "x"])"},
    {"qk_nope_head_dim", R"([0, -1, "x"])"},
    {"qk_rope_head_dim", R"([-1, 63, "x"])"},
    {"v_head_dim", R"([0, -1, "x"])"},
    {"index_topk", R"([-1, "x"])"},
    {"indexer_rope_interleave", R"([7, "yes"])"},
    {"indexer_types", R"(["full", ["full"], [7, 7, 7, 7, 7], ["full", "F", "F", "F", "half"],
                          ["shared", "full", "full", "full", "full"]])"},
    {"index_topk_freq", R"([0, -1, "x"])"},
    {"index_skip_topk_offset", R"([0, -1, "x"])"},
    {"mlp_layer_types", R"(["dense", ["dense"], [1, 2, 3], ["dense", "sparse", "few"]])"},
    {"index_n_heads", R"([0, -1, "x"])"},
    {"index_head_dim", R"([0, -1, "x"])"},
    {"full_attention_interval", R"([0, -1, "x"])"},
    {"linear_conv_kernel_dim", R"([0, -1, "x"])"},
    {"linear_key_head_dim", R"([0, -1, "x"])"},
    {"linear_value_head_dim", R"([0, -1, "x"])"},
    {"linear_num_key_heads", R"([0, -1, "x"])"},
    {"linear_num_value_heads", R"([0, -1, 3, "x"])"},
};

class BadConfigTest : public ::testing::TestWithParam<std::string> {
 protected:
  BadConfigTest() {
    Result<std::unique_ptr<HeaderFolder>> opened = HeaderFolder::open(GetParam());
    CHECK(opened.ok());
    folder_ = std::move(opened).value();
  }

  // Of a config.json on its way to a model without weights.
  Status status_of(const Json& config) const {
    folder_->write_config(config);
    ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(folder_->path()));
    EngineConfig engine;
    engine.model.model = folder_->path();
    ASSIGN_OR_RETURN(const ResolvedConfig resolved, resolve(engine, model));
    return build_model(resolved).status();
  }

  // Changes `key` where it counts: in the object of the text model or, if that has none, outside.
  template <typename Change>
  bool change(const std::string& key, Json& config, Change&& change) const {
    for (Json* object :
         {config.contains("text_config") ? &config["text_config"] : nullptr, &config}) {
      if (object == nullptr || !object->contains(key)) continue;
      change(*object);
      return true;
    }
    return false;
  }

  void expect_refused(const Json& config, const std::string& key, const std::string& what) const {
    const Status status = status_of(config);
    EXPECT_FALSE(status.ok()) << key << " " << what;
    EXPECT_NE(status.message().find("config.json"), std::string::npos)
        << key << " " << what << ": " << status.message();
    EXPECT_NE(status.message().find(key), std::string::npos)
        << key << " " << what << ": " << status.message();
  }

  std::unique_ptr<HeaderFolder> folder_;
};

TEST_P(BadConfigTest, TheCaseItselfIsTaken) {
  EXPECT_EQ(status_of(folder_->config()).message(), "");
}

TEST_P(BadConfigTest, AMissingKeyIsNamed) {
  for (const char* key : kNeeded) {
    Json config = folder_->config();
    ASSERT_TRUE(change(key, config, [&](Json& object) { object.erase(key); })) << key;
    expect_refused(config, key, "missing");
  }
}

TEST_P(BadConfigTest, AKeyThatItsArchitectureNeedsIsNamed) {
  for (const Needed& needed : kNeededBy) {
    if (folder_->config()["architectures"][0] != needed.architecture) continue;
    for (const char* key : needed.keys) {
      Json config = folder_->config();
      ASSERT_TRUE(change(key, config, [&](Json& object) { object.erase(key); })) << key;
      expect_refused(config, key, "missing");
      config = folder_->config();
      change(key, config, [&](Json& object) { object[key] = 0; });
      expect_refused(config, key, "0");
    }
  }
}

TEST_P(BadConfigTest, NonsenseIsRefusedByItsKey) {
  int num_refused = 0;
  for (const Nonsense& nonsense : kNonsense) {
    const Json values = Json::parse(nonsense.values);
    for (const Json& value : values) {
      Json config = folder_->config();
      if (!change(nonsense.key, config, [&](Json& object) { object[nonsense.key] = value; })) {
        break;
      }
      expect_refused(config, nonsense.key, value.dump());
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 40);
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         BadConfigTest,
                         ::testing::ValuesIn(golden_case_folders()),
                         case_name);

}  // namespace
}  // namespace atom
