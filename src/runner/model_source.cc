#include "runner/model_source.h"

#include "base/env.h"
#include "base/human.h"
#include "base/log.h"
#include "loader/checkpoint.h"
#include "loader/load_dummy.h"
#include "loader/load_model.h"
#include "models/registry.h"

namespace atom {

namespace {

// Of one checkpoint.
class ModelWithDraft : public Module {
 public:
  ModelWithDraft(CausalLM& model, DraftModel* draft) {
    register_module("", &model);
    if (draft != nullptr) register_module("", draft);
  }
};

}  // namespace

Result<BuiltModel> build_model(const ResolvedConfig& config,
                               Device device,
                               const ParallelContext& parallel) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config.model.architecture));
  BuildContext build{config.model, config.dtype, config.max_model_len(), device};
  build.parallel = parallel;
  build.kv_cache_dtype = config.kv_cache_dtype;
  build.emulate_quantized_activations = config.engine.model.emulate_quantized_activations;
  build.fusions = {.rms_norm_quant = env().fused_rms_norm_quant,
                   .silu_and_mul_quant = env().fused_silu_mul_quant,
                   .qk_norm_rope_cache = env().qk_norm_rope_cache_fusion};
  ASSIGN_OR_RETURN(std::unique_ptr<CausalLM> model, architecture->create(build));
  RETURN_IF_ERROR(build.status);
  std::unique_ptr<DraftModel> draft;
  if (config.speculative.method == SpeculativeMethod::kMtp) {
    if (parallel.pipeline_parallel_size > 1) {
      return unimplemented(
          "--method mtp: not supported with --pipeline-parallel-size {}; expected ngram or off",
          parallel.pipeline_parallel_size);
    }
    ASSIGN_OR_RETURN(draft, create_mtp(*architecture, build, *model));
    RETURN_IF_ERROR(build.status);
  }
  return BuiltModel{device, parallel, std::move(model), std::move(draft), std::move(build.storage)};
}

Status load_weights(const ResolvedConfig& config,
                    const Stream& stream,
                    CausalLM& model,
                    DraftModel* draft,
                    const LoadProgress& progress) {
  const ModelSourceConfig& source = config.engine.model;
  ModelWithDraft loaded(model, draft);
  if (source.load_dummy != DummyWeights::kNone) {
    return load_dummy(&loaded, source.load_dummy, source.seed, stream);
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(source.model));
  LoadOptions options;
  options.stream = &stream;
  options.use_mmap = !env().disable_mmap;
  options.progress = progress;
  ASSIGN_OR_RETURN(const LoadReport report,
                   load_model(&loaded, checkpoint, model.weight_mapping(), options));
  log::info("loaded {} in {:.2f} s, {:.1f} GB/s",
            human_bytes(static_cast<int64_t>(report.account.loaded_bytes)),
            report.seconds,
            static_cast<double>(report.account.loaded_bytes) * 1e-9 / report.seconds);
  return {};
}

}  // namespace atom
