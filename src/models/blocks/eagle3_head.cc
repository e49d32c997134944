#include "models/blocks/eagle3_head.h"

#include "ops/embedding/embedding.h"
#include "tensor/copy_rows.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

GqaOptions first_attention(const ModelConfig& config) {
  GqaOptions options = gqa_options(config, 0);
  options.input_size = 2 * int64_t{config.hidden_size};
  return options;
}

std::unique_ptr<DecoderLayer> make_layer(BuildContext& build,
                                         const RotaryEmbedding& rotary,
                                         int layer) {
  const ModelConfig& config = build.config;
  LayerParts parts = {
      make_sub_layer<GqaAttention>(build, "self_attn", rotary, gqa_options(config, layer)),
      make_sub_layer<GatedMLP>(build, "mlp", config.intermediate_size, config.mlp_bias)};
  return std::make_unique<DecoderLayer>(build, std::move(parts), NormWeight::kModelDtype);
}

}  // namespace

Eagle3Head::Eagle3Head(BuildContext& build,
                       BuildContext& of_head,
                       const CausalLM& target,
                       const Eagle3Config& config,
                       WeightMapping weight_mapping)
    : target_(target),
      weight_mapping_(std::move(weight_mapping)),
      aux_layers_(config.aux_layers),
      hidden_size_(config.model.hidden_size),
      target_hidden_size_(config.target_hidden_size),
      vocab_size_(config.model.vocab_size),
      num_ids_(config.draft_vocab_size),
      dtype_(build.dtype),
      norm_before_residual_(config.norm_before_residual),
      norm_output_(config.norm_output),
      rotary_(build),
      fc_(ModuleScope(build, "fc"),
          std::ssize(aux_layers_) * target_hidden_size_,
          hidden_size_,
          /*has_bias=*/false),
      input_layernorm_(build, hidden_size_),
      hidden_norm_(build, hidden_size_),
      attention_(ModuleScope(build, config.first_layer + ".self_attn"),
                 rotary_,
                 first_attention(config.model)),
      post_attention_layernorm_(build, hidden_size_),
      mlp_(ModuleScope(build, config.first_layer + ".mlp"),
           config.model.intermediate_size,
           config.model.mlp_bias),
      norm_(build, hidden_size_),
      lm_head_(of_head, nullptr),
      head_(of_head, lm_head_) {
  register_module("rotary", &rotary_);
  if (config.has_embedding) {
    embed_tokens_ = std::make_unique<VocabParallelEmbedding>(build, /*tied_to_head=*/false);
    register_module("embed_tokens", embed_tokens_.get());
  }
  make_state_norms(build, config);
  register_module("fc", &fc_);
  register_module(config.first_layer + ".input_layernorm", &input_layernorm_);
  register_module(config.first_layer + ".hidden_norm", &hidden_norm_);
  register_module(config.first_layer + ".self_attn", &attention_);
  register_module(config.first_layer + ".post_attention_layernorm", &post_attention_layernorm_);
  register_module(config.first_layer + ".mlp", &mlp_);
  for (int layer = 1; layer < config.model.num_hidden_layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    layers_.push_back(make_layer(ModuleScope(build, name), rotary_, layer));
    register_module(name, layers_.back().get());
  }
  register_module("norm", &norm_);
  register_module("lm_head", &lm_head_);
  register_module("", &head_);
  if (!config.has_token_map) return;
  token_map_.emplace(DType::kInt64, Shape{num_ids_});
  token_map_->keep_on_host();
  register_parameter("d2t", &*token_map_);
}

void Eagle3Head::make_state_norms(BuildContext& build, const Eagle3Config& config) {
  const auto num_states = static_cast<int64_t>(aux_layers_.size());
  if (config.norm_before_fc) {
    input_norm_ = std::make_unique<RMSNorm>(build, num_states * target_hidden_size_);
    register_module("input_norm", input_norm_.get());
  }
  for (int64_t i = 0; i < num_states && config.norms_each_state; ++i) {
    fc_norms_.push_back(std::make_unique<RMSNorm>(build, target_hidden_size_));
    register_module("fc_norm." + std::to_string(i), fc_norms_.back().get());
  }
}

Status Eagle3Head::finish_load(const Stream& stream) {
  RETURN_IF_ERROR(Module::finish_load(stream));
  if (!token_map_) return {};
  const int64_t* offsets = token_map_->data().data<int64_t>();
  const Tensor tokens = Tensor::empty({num_ids_, 1}, DType::kInt32);
  for (int64_t id = 0; id < num_ids_; ++id) {
    const int64_t token = id + offsets[id];
    if (token < 0 || token >= vocab_size_) {
      return invalid_argument(
          "'d2t' makes token {} of id {}; expected one below {}, the vocabulary",
          token,
          id,
          vocab_size_);
    }
    tokens.data<int32_t>()[id] = static_cast<int32_t>(token);
  }
  token_table_ = resident_copy(stream, tokens);
  token_map_->release();
  return {};
}

Tensor Eagle3Head::project(const Tensor& hidden,
                           const Tensor& hidden_rows,
                           const ForwardContext& context) const {
  const auto num_states = static_cast<int64_t>(aux_layers_.size());
  const int64_t num_rows = hidden.size(0) / num_states;
  const Tensor states =
      context.workspace.tensor({context.num_tokens(), num_states * target_hidden_size_}, dtype_);
  for (int64_t i = 0; i < num_states; ++i) {
    const Tensor state = states.narrow(1, i * target_hidden_size_, target_hidden_size_);
    ops::embedding(context.stream, hidden_rows, hidden.narrow(0, i * num_rows, num_rows), state);
    if (!fc_norms_.empty()) fc_norms_[i]->forward(state, context);
  }
  if (input_norm_ != nullptr) input_norm_->forward(states, context);
  return fc_.forward(states, context);
}

void Eagle3Head::attend(const ResidualStream& residual, const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const Tensor pair = context.workspace.tensor({context.num_tokens(), 2 * hidden_size_}, dtype_);
  const Tensor embedded = pair.narrow(1, 0, hidden_size_);
  const Tensor state = pair.narrow(1, hidden_size_, hidden_size_);
  const VocabParallelEmbedding& embedding =
      embed_tokens_ != nullptr ? *embed_tokens_ : target_.embed_tokens();
  embedding.forward(context.token_ids, embedded, context);
  input_layernorm_.forward(embedded, context);
  if (norm_before_residual_) hidden_norm_.forward(residual.sum, context);
  copy_rows(context.stream, residual.sum, state);
  if (!norm_before_residual_) hidden_norm_.forward(state, context);
  attention_.forward(pair, residual.update, context);
}

Tensor Eagle3Head::forward(const Tensor& hidden,
                           const Tensor& hidden_rows,
                           int draft,
                           const ForwardContext& context) const {
  const Shape shape = {context.num_tokens(), hidden_size_};
  ResidualStream residual;
  residual.update = context.workspace.tensor(shape, dtype_);
  if (draft == 0) {
    residual.sum = project(hidden, hidden_rows, context);
  } else {
    residual.sum = context.workspace.tensor(shape, dtype_);
    ops::embedding(context.stream, hidden_rows, hidden, residual.sum);
  }
  attend(residual, context);
  residual.is_pending = true;
  residual.is_part = attention_.leaves_parts();
  {
    const Workspace::Scope scope(context.workspace);
    const Activation x = add_and_normalize(
        post_attention_layernorm_, residual, mlp_.wanted(residual.sum.size(0)), context);
    mlp_.forward(x, residual.update, context);
  }
  residual.is_pending = true;
  residual.is_part = mlp_.leaves_parts();
  for (const auto& layer : layers_) layer->forward(residual, context);
  const Tensor normed = add_and_normalize(norm_, residual, {}, context).rows;
  return norm_output_ ? normed : residual.sum;
}

void Eagle3Head::compute_logits(const Tensor& hidden,
                                const Tensor& logits,
                                const ForwardContext& context) const {
  if (norm_output_) return head_.forward(hidden, logits, context);
  const Workspace::Scope scope(context.workspace);
  head_.forward(norm_.forward(hidden, {}, context).rows, logits, context);
}

}  // namespace atom
