#include "runner/model_source.h"

#include "base/env.h"
#include "base/human.h"
#include "base/log.h"
#include "config/speculative_config.h"
#include "loader/checkpoint.h"
#include "loader/load_dummy.h"
#include "loader/load_model.h"
#include "models/registry.h"
#include "ops/linear/linear.h"
#include "runner/draft_quantization.h"

namespace atom {

namespace {

// A model and what drafts for it, of one checkpoint.
class ModelWithDraft : public Module {
 public:
  ModelWithDraft(CausalLM& model, DraftModel* draft) {
    register_module("", &model);
    if (draft != nullptr) register_module("", draft);
  }
};

// The head of --draft-model, as its folder says. Made-up weights need no files.
Result<Eagle3Config> open_eagle3(const ResolvedConfig& config) {
  const std::string& folder = config.speculative.draft_model;
  ASSIGN_OR_RETURN(Eagle3Config eagle3, load_eagle3_config(folder, config.model));
  if (config.engine.model.load_dummy != DummyWeights::kNone) {
    eagle3.has_embedding = eagle3.model.hidden_size != config.model.hidden_size;
    return eagle3;
  }
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return checkpoint.status().with_context("--draft-model");
  eagle3.has_embedding = checkpoint->find("embed_tokens.weight") != nullptr;
  eagle3.has_token_map = checkpoint->find("d2t") != nullptr;
  if (!eagle3.has_token_map && eagle3.draft_vocab_size < config.model.vocab_size) {
    return invalid_argument(
        "--draft-model {}: missing d2t, which says what the {} ids of the head mean among the "
        "model's {} tokens",
        folder,
        eagle3.draft_vocab_size,
        config.model.vocab_size);
  }
  if (checkpoint->find("layers.0.hidden_norm.weight") != nullptr) eagle3.first_layer = "layers.0";
  return eagle3;
}

// The configuration of a model whose checkpoint brings what drafts.
Result<ModelConfig> config_with_drafts(const ResolvedConfig& config) {
  const bool reads_layers = config.speculative.method == SpeculativeMethod::kMtp &&
                            config.engine.model.load_dummy == DummyWeights::kNone;
  if (!reads_layers || !config.model.quantization.is_quantized()) return config.model;
  const Result<Checkpoint> checkpoint = Checkpoint::open(config.engine.model.model);
  // A plan needs no tensors; whoever loads them says what is wrong.
  if (!checkpoint.ok()) return config.model;
  return with_draft_layers_as_stored(config.model, *checkpoint);
}

// A fixed order of sums is no faster with an FP8 weight.
bool has_float8_draft_head(const ResolvedConfig& config, Device device) {
  switch (config.speculative.draft_head_dtype) {
    case DraftHeadDType::kFloat8:
      return true;
    case DraftHeadDType::kModel:
      return false;
    case DraftHeadDType::kAuto:
      return dtype_size(config.dtype) == 2 && ops::max_float8_rows(device) > 0 &&
             !config.engine.device.deterministic;
  }
  return false;
}

// A state has seen all tokens before: a rank cannot begin in the middle of a prompt.
Status check_states(const BuildContext& build) {
  const ParallelContext& parallel = build.parallel;
  if (!build.storage.has_states() && build.state_dtype != DType::kFloat32) {
    return invalid_argument(
        "--mamba-ssm-cache-dtype {}: the model has no recurrent states; expected auto",
        dtype_name(build.state_dtype));
  }
  if (parallel.context_parallel_size == 1 || !build.storage.has_states()) return {};
  return unimplemented(
      "--prefill-context-parallel-size {}: not supported with layers of recurrent states (Gated "
      "DeltaNet), which compute a prompt's tokens one after the other; expected 1",
      parallel.context_parallel_size);
}

// On the CPU activations of experts are rounded in every step.
Status check_expert_activations(const ResolvedConfig& config, Device device) {
  const EngineConfig& engine = config.engine;
  const bool by_size = engine.model.moe_activations == ExpertActivations::kFp8 && !device.is_cpu();
  if (!by_size || !engine.device.deterministic) return {};
  return invalid_argument(
      "--moe-activations fp8: not with --deterministic, since on a GPU only steps of many tokens "
      "have such activations; expected auto");
}

Status load_from(const std::string& folder,
                 Module* module,
                 const WeightMapping& mapping,
                 const Stream& stream,
                 const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  LoadOptions options;
  options.stream = &stream;
  options.use_mmap = !env().disable_mmap;
  options.progress = progress;
  ASSIGN_OR_RETURN(const LoadReport report, load_model(module, checkpoint, mapping, options));
  log::info("loaded {} in {:.2f} s, {:.1f} GB/s",
            human_bytes(static_cast<int64_t>(report.account.loaded_bytes)),
            report.seconds,
            static_cast<double>(report.account.loaded_bytes) * 1e-9 / report.seconds);
  return {};
}

}  // namespace

Result<BuiltModel> build_model(const ResolvedConfig& config,
                               Device device,
                               const ParallelContext& parallel) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config.model.architecture));
  RETURN_IF_ERROR(check_expert_activations(config, device));
  ASSIGN_OR_RETURN(const ModelConfig model_config, config_with_drafts(config));
  BuildContext build{model_config, config.dtype, config.max_model_len(), device};
  build.parallel = parallel;
  build.kv_cache_dtype = config.kv_cache_dtype;
  build.state_dtype = config.engine.cache.state_dtype;
  build.kv_window = config.scheduler.kv_window;
  build.num_kv_groups = config.scheduler.num_kv_groups;
  build.emulate_quantized_activations = config.engine.model.emulate_quantized_activations;
  build.float8_expert_activations = config.engine.model.moe_activations == ExpertActivations::kFp8;
  build.fusions = {.rms_norm_quant = env().fused_rms_norm_quant,
                   .silu_and_mul_quant = env().fused_silu_mul_quant,
                   .qk_norm_rope_cache = env().qk_norm_rope_cache_fusion,
                   .mla_input_norm_quant = env().mla_input_norm_quant,
                   .mla_latents = env().mla_latents_fusion,
                   // A row's bits would follow from how long its chunk is.
                   .mla_prefill = env().mla_prefill && !config.engine.device.deterministic,
                   .all_reduce_rms_norm = env().all_reduce_rms_norm_fusion};
  build.float8_draft_head = has_float8_draft_head(config, device);
  Eagle3Config eagle3;
  build.last_stage_embeds = config.speculative.method == SpeculativeMethod::kMtp;
  if (config.speculative.method == SpeculativeMethod::kEagle3) {
    ASSIGN_OR_RETURN(eagle3, open_eagle3(config));
    build.aux_layers = eagle3.aux_layers;
    build.last_stage_embeds = !eagle3.has_embedding;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CausalLM> model, architecture->create(build));
  RETURN_IF_ERROR(build.status);
  RETURN_IF_ERROR(check_states(build));
  std::unique_ptr<DraftModel> draft;
  // It is given the blocks of the first group.
  build.kv_window = 0;
  // The last stage has the hidden states that drafts are made of, and chooses the tokens.
  if (config.speculative.method == SpeculativeMethod::kMtp && parallel.samples()) {
    ASSIGN_OR_RETURN(draft, create_mtp(*architecture, build, *model));
    RETURN_IF_ERROR(build.status);
  } else if (config.speculative.method == SpeculativeMethod::kEagle3 && parallel.samples()) {
    ASSIGN_OR_RETURN(draft, create_eagle3(build, *model, eagle3));
  }
  return BuiltModel{.device = device,
                    .parallel = parallel,
                    .model = std::move(model),
                    .draft = std::move(draft),
                    .storage = std::move(build.storage),
                    .num_aux_layers = std::ssize(build.aux_layers),
                    .moving_experts = std::move(build.moving_experts)};
}

Status load_weights(const ResolvedConfig& config,
                    const Stream& stream,
                    CausalLM& model,
                    DraftModel* draft,
                    const LoadProgress& progress) {
  const ModelSourceConfig& source = config.engine.model;
  const bool has_own_files = draft != nullptr && draft->weight_mapping() != nullptr;
  ModelWithDraft loaded(model, has_own_files ? nullptr : draft);
  if (source.load_dummy != DummyWeights::kNone) {
    if (has_own_files) {
      RETURN_IF_ERROR(load_dummy(draft, source.load_dummy, source.seed, stream));
    }
    return load_dummy(&loaded, source.load_dummy, source.seed, stream);
  }
  if (has_own_files) {
    // First: what is wrong with the smaller one is said before the larger one is read.
    const std::string& folder = config.speculative.draft_model;
    RETURN_IF_ERROR(load_from(folder, draft, *draft->weight_mapping(), stream, nullptr)
                        .with_context("--draft-model " + folder));
  }
  return load_from(source.model, &loaded, model.weight_mapping(), stream, progress);
}

}  // namespace atom
