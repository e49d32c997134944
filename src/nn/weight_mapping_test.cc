#include "nn/weight_mapping.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

WeightMapping mapping(bool tied = true) {
  ModelConfig config;
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = tied;
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {{"q_proj", "qkv_proj", "q"}, {"k_proj", "qkv_proj", "k"}};
  return mapping;
}

TEST(WeightMapping, RenamesInOrder) {
  WeightMapping rules;
  rules.renames = {{RenameRule::Match::kPrefix, "language_model.", ""},
                   {RenameRule::Match::kContains, ".block.", ".mlp."},
                   {RenameRule::Match::kPrefix, "mlp", "never"}};
  EXPECT_EQ(map_name(rules, "language_model.layers.0.block.w").parameter, "layers.0.mlp.w");
  EXPECT_EQ(map_name(rules, "x.language_model.w").parameter, "x.language_model.w");
}

TEST(WeightMapping, PacksWholeComponentsOnly) {
  const MappedName mapped = map_name(mapping(), "model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(mapped.packed.size(), 1u);
  EXPECT_EQ(mapped.packed[0].parameter, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(mapped.packed[0].slice_id, "q");
  EXPECT_TRUE(map_name(mapping(), "model.layers.0.self_attn.aq_proj.weight").packed.empty());
}

WeightMapping expert_mapping() {
  WeightMapping mapping;
  mapping.packed_modules_mapping = {{"experts.{e}.w1", "experts.gate_up_proj", "{e}.gate"},
                                    {"experts.{e}.w2", "experts.down_proj", "{e}"},
                                    {"experts.down_proj$", "experts.down_proj.weight", ""},
                                    {"q_proj", "qkv_proj", "q"}};
  return mapping;
}

TEST(WeightMapping, CapturesComponents) {
  const MappedName gate = map_name(expert_mapping(), "model.layers.3.moe.experts.17.w1.weight");
  ASSERT_EQ(gate.packed.size(), 1u);
  EXPECT_EQ(gate.packed[0].parameter, "model.layers.3.moe.experts.gate_up_proj.weight");
  EXPECT_EQ(gate.packed[0].slice_id, "17.gate");
  const MappedName down = map_name(expert_mapping(), "experts.0.w2");
  ASSERT_EQ(down.packed.size(), 1u);
  EXPECT_EQ(down.packed[0].parameter, "experts.down_proj");
  EXPECT_EQ(down.packed[0].slice_id, "0");
  // A run of whole components.
  EXPECT_TRUE(map_name(expert_mapping(), "experts.17.x.w1.weight").packed.empty());
  EXPECT_TRUE(map_name(expert_mapping(), "experts.17").packed.empty());
  EXPECT_TRUE(map_name(expert_mapping(), "myexperts.17.w1").packed.empty());
}

TEST(WeightMapping, MatchesAtTheEndOfANameOnlyWhenAskedTo) {
  const MappedName fused = map_name(expert_mapping(), "moe.experts.down_proj");
  ASSERT_EQ(fused.packed.size(), 1u);
  EXPECT_EQ(fused.packed[0].parameter, "moe.experts.down_proj.weight");
  EXPECT_EQ(fused.packed[0].slice_id, "");
  EXPECT_TRUE(map_name(expert_mapping(), "moe.experts.down_proj.bias").packed.empty());
}

TEST(WeightMapping, FindsTheModuleBehindASlice) {
  const std::vector<PackedModule> packed = expert_mapping().packed_modules_mapping;
  EXPECT_EQ(source_module(packed, "layers.1.self_attn.qkv_proj", "q"), "layers.1.self_attn.q_proj");
  EXPECT_EQ(source_module(packed, "moe.experts.gate_up_proj", "5.gate"), "moe.experts.5.w1");
  EXPECT_EQ(source_module(packed, "experts.down_proj", "12"), "experts.12.w2");
  EXPECT_EQ(source_module(packed, "moe.experts.gate_up_proj", "5.up"), "moe.experts.gate_up_proj");
  EXPECT_EQ(source_module(packed, "layers.1.o_proj", ""), "layers.1.o_proj");
}

TEST(WeightMapping, IgnoresLayersBehindTheLast) {
  const WeightMapping rules = mapping();
  EXPECT_EQ(ignore_reason(rules, "model.layers.1.x"), "");
  EXPECT_EQ(ignore_reason(rules, "model.layers.2.x"), "layers from 2 on");
  EXPECT_EQ(ignore_reason(rules, "model.layers.99999999999999999999.x"), "");
  EXPECT_EQ(ignore_reason(rules, "model.layers.2x.x"), "");
  EXPECT_EQ(ignore_reason(rules, "layers"), "");
}

TEST(WeightMapping, IgnoresTheHeadOnlyWhenItIsTied) {
  EXPECT_EQ(ignore_reason(mapping(true), "lm_head.weight"), "lm_head.*");
  EXPECT_EQ(ignore_reason(mapping(false), "lm_head.weight"), "");
}

TEST(WeightMapping, TakesTheTextModelOutOfAMultimodalCheckpoint) {
  const WeightMapping rules = mapping();
  // As transformers 4 and 5 write them.
  EXPECT_EQ(map_name(rules, "language_model.model.norm.weight").parameter, "model.norm.weight");
  EXPECT_EQ(map_name(rules, "model.language_model.norm.weight").parameter, "model.norm.weight");
  EXPECT_EQ(map_name(rules, "language_model.lm_head.weight").parameter, "lm_head.weight");
  for (const char* name : {"vision_tower.blocks.0.weight",
                           "model.visual.blocks.0.weight",
                           "visual.patch_embed.weight",
                           "model.vision_tower.weight",
                           "multi_modal_projector.linear.weight",
                           "model.multi_modal_projector.linear.weight"}) {
    EXPECT_NE(ignore_reason(rules, map_name(rules, name).parameter), "") << name;
  }
}

TEST(WeightMapping, GivesScalesOneName) {
  ModelConfig config;
  config.quantization.method = "fp8";
  const WeightMapping rules = base_weight_mapping(config);
  const auto renamed = [&](const char* name) { return map_name(rules, name).parameter; };
  EXPECT_EQ(renamed("a.q_proj.weight_scale_inv"), "a.q_proj.weight_scale");
  EXPECT_EQ(renamed("a.q_proj.weight_scale"), "a.q_proj.weight_scale");
  EXPECT_EQ(renamed("a.q_proj.activation_scale"), "a.q_proj.input_scale");
  EXPECT_EQ(renamed("self_attn.k_proj.k_scale"), "self_attn.k_scale");
  EXPECT_EQ(renamed("self_attn.v_proj.output_scale"), "self_attn.v_scale");
  EXPECT_EQ(renamed("self_attn.attn.v_scale"), "self_attn.v_scale");
  EXPECT_EQ(ignore_reason(rules, "self_attn.k_scale"), "*.k_scale");
  EXPECT_EQ(ignore_reason(rules, "self_attn.q_proj.weight_scale"), "");
  EXPECT_EQ(ignore_reason(mapping(), "self_attn.k_scale"), "");
}

}  // namespace
}  // namespace atom
