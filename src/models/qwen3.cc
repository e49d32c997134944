// Qwen3ForCausalLM (dense): the Llama skeleton with queries and keys normalised per head before
// they are rotated.
#include "layers/attention/attention.h"
#include "layers/linear/qkv_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

class Qwen3Attention : public Module {
 public:
  Qwen3Attention(BuildContext& build, const RotaryEmbedding& rotary, int layer)
      : rotary_(rotary),
        qkv_proj_(ModuleScope(build, "qkv_proj"),
                  build.config.hidden_size,
                  build.config.num_attention_heads,
                  build.config.num_key_value_heads,
                  build.config.head_dim,
                  build.config.qkv_bias),
        q_norm_(build, build.config.head_dim),
        k_norm_(build, build.config.head_dim),
        attention_(build,
                   qkv_proj_.num_kv_heads(),
                   build.config.head_dim,
                   build.config.layer_sliding_window(layer)),
        o_proj_(ModuleScope(build, "o_proj"),
                build.config.q_size(),
                build.config.hidden_size,
                build.config.o_proj_bias) {
    register_module("qkv_proj", &qkv_proj_);
    register_module("q_norm", &q_norm_);
    register_module("k_norm", &k_norm_);
    register_module("", &attention_);
    register_module("o_proj", &o_proj_);
  }

  const LinearBase& input_linear() const { return qkv_proj_; }

  void forward(const LinearInput& x, const ForwardContext& context) const {
    const auto [q, k, v] = qkv_proj_.forward(x, context);
    const QkPreparation preparation = {rotary_, &q_norm_, &k_norm_};
    o_proj_.forward(attention_.forward(q, k, v, preparation, context), x, context);
  }

 private:
  const RotaryEmbedding& rotary_;
  QKVParallelLinear qkv_proj_;
  RMSNorm q_norm_;
  RMSNorm k_norm_;
  Attention attention_;
  RowParallelLinear o_proj_;
};

class Qwen3MLP : public GatedMLP {
 public:
  Qwen3MLP(BuildContext& build, int /*layer*/)
      : GatedMLP(build, build.config.intermediate_size, /*has_bias=*/false) {}
};

using Qwen3ForCausalLM = DecoderForCausalLM<DecoderLayer<Qwen3Attention, Qwen3MLP>>;

WeightMapping qwen3_weight_mapping(const ModelConfig& config) {
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {{"q_proj", "qkv_proj", "q"},
                                    {"k_proj", "qkv_proj", "k"},
                                    {"v_proj", "qkv_proj", "v"},
                                    {"gate_proj", "gate_up_proj", "gate"},
                                    {"up_proj", "gate_up_proj", "up"}};
  return mapping;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_qwen3(BuildContext& build) {
  RETURN_IF_ERROR(require_silu(build.config));
  RETURN_IF_ERROR(require_no_query_scaling(build.config));
  return std::unique_ptr<CausalLM>(
      std::make_unique<Qwen3ForCausalLM>(build, qwen3_weight_mapping(build.config)));
}

}  // namespace atom
