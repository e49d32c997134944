// What a model's constructor needs to build its layers. New concerns of construction (quantization,
// parallel groups) become fields here, so that the signatures of layers and models stay.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "config/model_config.h"
#include "nn/layer_cache.h"
#include "nn/parallel_context.h"
#include "nn/weight_mapping.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace atom {

class FusedMoE;

// Which operators are fused with their neighbors, where both orders compute the same.
struct Fusions {
  bool rms_norm_quant = true;      // RMSNorm leaves its result quantized for layers that read codes
  bool silu_and_mul_quant = true;  // likewise the activation of a gated MLP
  bool qk_norm_rope_cache = true;  // on a GPU: query and key norms, rope and cache write in one
  bool mla_input_norm_quant = true;  // as rms_norm_quant, of the norm before latent attention
  // The projections to the latents of queries and of keys and values as one multiplication, and
  // the norm of the former as rms_norm_quant.
  bool mla_latents = true;
  bool mla_prefill = true;  // on a GPU: long prompts by keys and values expanded from latents
  bool all_reduce_rms_norm = true;  // on GPUs: RMSNorm adds up the parts of a layer's ranks
};

struct BuildContext {
  const ModelConfig& config;
  DType dtype = DType::kBFloat16;  // of activations, and of weights that are not quantized
  int64_t max_model_len = 0;       // positions that rope tables must cover
  Device device = {};              // where the model will run
  ParallelContext parallel = {};

  // What the layers built so far keep between steps; grown by add_cache() and add_state().
  StorageSpec storage = {};
  CacheHandle add_cache(const LayerCache& cache) {
    const bool has_window = kv_window > 0 && cache.sliding_window == kv_window;
    CHECK((has_window || kv_window == 0 || num_kv_groups > 1));
    const int32_t group = has_window ? num_kv_groups - 1 : 0;
    const CacheHandle handle = {storage.caches.size(), cache.planes.size(), group};
    for (CachePlane plane : cache.planes) {
      plane.group = group;
      storage.caches.push_back(std::move(plane));
    }
    return handle;
  }
  StateHandle add_state(const LayerState& state) {
    const StateHandle handle = {storage.states.size(), state.planes.size()};
    storage.states.insert(storage.states.end(), state.planes.begin(), state.planes.end());
    return handle;
  }

  // dtype, or FP8.
  DType kv_cache_dtype = dtype;
  // Of recurrent states: float32 or bfloat16.
  DType state_dtype = DType::kFloat32;
  // SchedulerConfig's.
  int32_t kv_window = 0;
  int32_t num_kv_groups = 1;
  bool emulate_quantized_activations = true;
  bool float8_expert_activations = false;  // of experts in MXFP4
  Fusions fusions = {};
  // The name in the checkpoint of the module being built, "model.layers.0.self_attn.qkv_proj": a
  // quantization config speaks of layers by name. Kept by ModuleScope.
  std::string module_name = {};
  // The model's, by which the parts of merged modules have names in the checkpoint.
  std::vector<PackedModule> packed_modules_mapping = {};

  // Those built so far whose experts may be moved between ranks; they live as long as the model.
  std::vector<FusedMoE*> moving_experts = {};

  // Layers of the model, ascending, whose input a draft model reads: ForwardContext::aux_hidden.
  std::vector<int> aux_layers = {};
  // Draft models multiply by copies of output heads in FP8.
  bool float8_draft_head = false;
  // A draft model, which is on the last stage of a pipeline, reads the model's embedding.
  bool last_stage_embeds = false;

  // The first thing found wrong while layers were built: constructors have no result.
  Status status = {};
  void fail(Status error) {
    if (status.ok()) status = std::move(error);
  }
};

// Names a module while its constructor runs:
//   qkv_proj_(ModuleScope(build, "qkv_proj"), ...)
class ModuleScope {
 public:
  ModuleScope(BuildContext& build, std::string_view name)
      : build_(build), parent_size_(build.module_name.size()) {
    if (parent_size_ > 0) build_.module_name += '.';
    build_.module_name += name;
  }
  ~ModuleScope() { build_.module_name.resize(parent_size_); }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  operator BuildContext&() const { return build_; }  // NOLINT: implicit by design

 private:
  BuildContext& build_;
  size_t parent_size_;
};

}  // namespace atom
