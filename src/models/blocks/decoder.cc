#include "models/blocks/decoder.h"

#include <algorithm>

#include "ops/add/add.h"
#include "tensor/copy_rows.h"

namespace atom {
namespace {

void run(const RMSNorm& norm,
         const SubLayer& sub_layer,
         ResidualStream& residual,
         const ForwardContext& context) {
  const Workspace::Scope scope(context.workspace);
  const ActivationFormat format = sub_layer.wanted(residual.sum.size(0));
  const Activation x = add_and_normalize(norm, residual, format, context);
  sub_layer.forward(x, residual.update, context);
  residual.is_pending = true;
  residual.is_part = sub_layer.leaves_parts();
}

BuildContext& with_names_of(const WeightMapping& mapping, BuildContext& build) {
  build.packed_modules_mapping = mapping.packed_modules_mapping;
  return build;
}

}  // namespace

Activation add_and_normalize(const RMSNorm& norm,
                             ResidualStream& residual,
                             const ActivationFormat& format,
                             const ForwardContext& context) {
  const bool is_part = std::exchange(residual.is_part, false);
  if (!std::exchange(residual.is_pending, false)) {
    return norm.forward(residual.sum, format, context);
  }
  return norm.forward_add(residual.update, residual.sum, format, context, is_part);
}

WeightMapping decoder_weight_mapping(const ModelConfig& config) {
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {{"q_proj", "qkv_proj", "q"},
                                    {"k_proj", "qkv_proj", "k"},
                                    {"v_proj", "qkv_proj", "v"},
                                    {"gate_proj", "gate_up_proj", "gate"},
                                    {"up_proj", "gate_up_proj", "up"}};
  return mapping;
}

DecoderLayer::DecoderLayer(const BuildContext& build, LayerParts parts, NormWeight norm_weight)
    : input_layernorm_(build, build.config.hidden_size, norm_weight),
      token_mixer_(std::move(parts.token_mixer)),
      post_attention_layernorm_(build, build.config.hidden_size, norm_weight),
      feed_forward_(std::move(parts.feed_forward)) {
  register_module("input_layernorm", &input_layernorm_);
  register_module(token_mixer_.name, token_mixer_.sub_layer.get());
  register_module("post_attention_layernorm", &post_attention_layernorm_);
  register_module(feed_forward_.name, feed_forward_.sub_layer.get());
}

void DecoderLayer::forward(ResidualStream& residual, const ForwardContext& context) const {
  run(input_layernorm_, *token_mixer_.sub_layer, residual, context);
  run(post_attention_layernorm_, *feed_forward_.sub_layer, residual, context);
}

DecoderModel::DecoderModel(BuildContext& build, const DecoderSpec& spec)
    : stage_(pipeline_stage(build)),
      aux_layers_(build.aux_layers),
      parallel_(build.parallel),
      hidden_size_(build.config.hidden_size),
      dtype_(build.dtype),
      num_selected_(spec.num_selected),
      rotary_(build) {
  register_module("rotary", &rotary_);
  const bool is_tied = build.config.tie_word_embeddings;
  if (stage_.is_first || (stage_.is_last && (is_tied || build.last_stage_embeds))) {
    embed_tokens_ = std::make_unique<VocabParallelEmbedding>(build, is_tied);
    register_module("embed_tokens", embed_tokens_.get());
  }
  for (int layer = stage_.first_layer; layer < stage_.end_layer; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    const ModuleScope scope(build, name);
    layers_.push_back(std::make_unique<DecoderLayer>(
        build, spec.make_layer(build, rotary_, layer), spec.norm_weight));
    register_module(name, layers_.back().get());
  }
  if (!stage_.is_last) return;
  norm_ = std::make_unique<RMSNorm>(build, build.config.hidden_size, spec.norm_weight);
  register_module("norm", norm_.get());
}

// The stream goes on as it is: what is pending stays so, and the layers compute the same bits.
void DecoderModel::keep_aux(int layer,
                            ResidualStream& residual,
                            const ForwardContext& context) const {
  const auto found = std::ranges::find(aux_layers_, layer);
  if (found == aux_layers_.end()) return;
  complete(residual, context);
  const int64_t num_tokens = context.num_tokens();
  const Tensor kept =
      context.aux_hidden.narrow(0, (found - aux_layers_.begin()) * num_tokens, num_tokens);
  copy_rows(context.stream, residual.sum, kept);
  if (residual.is_pending) ops::add(context.stream, residual.update, kept);
}

void DecoderModel::complete(ResidualStream& residual, const ForwardContext& context) const {
  if (std::exchange(residual.is_part, false)) {
    parallel_.all_reduce(context.stream, residual.update);
  }
}

Tensor DecoderModel::aux_before(int layer, const ForwardContext& context) const {
  const auto count = std::ranges::lower_bound(aux_layers_, layer) - aux_layers_.begin();
  if (count == 0) return {};
  return context.aux_hidden.narrow(0, 0, count * context.num_tokens());
}

Tensor DecoderModel::forward(const ForwardContext& context) const {
  const Shape shape = {context.num_tokens(), hidden_size_};
  ResidualStream residual;
  residual.update = context.workspace.tensor(shape, dtype_);
  residual.sum = context.workspace.tensor(shape, dtype_);
  ForwardContext of_layers = context;
  if (num_selected_ > 0) {
    const Shape selected = {context.num_tokens(), num_selected_};
    of_layers.selected = context.workspace.tensor(selected, DType::kInt32);
  }
  if (stage_.is_first) {
    embed_tokens_->forward(context.token_ids, residual.sum, context);
  } else {
    parallel_.receive_from_previous(context.stream, residual.sum);
    parallel_.receive_from_previous(context.stream, residual.update);
    if (num_selected_ > 0) parallel_.receive_from_previous(context.stream, of_layers.selected);
    const Tensor aux = aux_before(stage_.first_layer, context);
    if (aux.defined()) parallel_.receive_from_previous(context.stream, aux);
    residual.is_pending = true;
  }
  int index = stage_.first_layer;
  for (const auto& layer : layers_) {
    keep_aux(index++, residual, context);
    layer->forward(residual, of_layers);
  }
  if (stage_.is_last) return add_and_normalize(*norm_, residual, {}, context).rows;
  complete(residual, context);
  parallel_.send_to_next(context.stream, residual.sum);
  parallel_.send_to_next(context.stream, residual.update);
  if (num_selected_ > 0) parallel_.send_to_next(context.stream, of_layers.selected);
  const Tensor aux = aux_before(stage_.end_layer, context);
  if (aux.defined()) parallel_.send_to_next(context.stream, aux);
  return residual.sum;
}

DecoderForCausalLM::DecoderForCausalLM(BuildContext& build, const DecoderSpec& spec)
    : model_(ModuleScope(with_names_of(spec.weight_mapping, build), "model"), spec),
      weight_mapping_(mapping_of_stage(spec.weight_mapping, model_.stage(), build.config)) {
  register_module("model", &model_);
  if (!model_.stage().is_last) return;
  lm_head_ = std::make_unique<ParallelLMHead>(
      build, build.config.tie_word_embeddings ? model_.embed_tokens() : nullptr);
  register_module("lm_head", lm_head_.get());
}

void DecoderForCausalLM::compute_logits(const Tensor& hidden,
                                        const Tensor& logits,
                                        const ForwardContext& context) const {
  if (lm_head_ != nullptr) lm_head_->forward(hidden, logits, context);
}

}  // namespace atom
