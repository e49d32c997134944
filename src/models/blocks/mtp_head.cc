#include "models/blocks/mtp_head.h"

#include <algorithm>

#include "ops/embedding/embedding.h"

namespace atom {
namespace {

constexpr int64_t kMaxMtpLayers = 16;

std::unique_ptr<DecoderLayer> make_decoder_layer(BuildContext& build,
                                                 const MtpSpec& spec,
                                                 const RotaryEmbedding& rotary,
                                                 const MtpSpec::Names& names,
                                                 int index) {
  const ModuleScope scope(build, names.layer);
  return std::make_unique<DecoderLayer>(
      build, spec.make_layer(build, rotary, index), spec.norm_weight);
}

}  // namespace

MtpSpec mtp_behind_layers(const ModelConfig& config, int64_t num_layers, LayerFactory make_layer) {
  MtpSpec spec{.layers = {}, .make_layer = std::move(make_layer)};
  for (int64_t i = 0; i < num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(config.num_hidden_layers + i);
    spec.layers.push_back({.embedding_norm = layer + ".enorm",
                           .hidden_norm = layer + ".hnorm",
                           .projection = layer + ".eh_proj",
                           .layer = layer,
                           .final_norm = layer + ".shared_head.norm"});
  }
  return spec;
}

MtpSpec mtp_beside_model(LayerFactory make_layer) {
  return {.layers = {{.embedding_norm = "mtp.pre_fc_norm_embedding",
                      .hidden_norm = "mtp.pre_fc_norm_hidden",
                      .projection = "mtp.fc",
                      .layer = "mtp.layers.0",
                      .final_norm = "mtp.norm"}},
          .make_layer = std::move(make_layer),
          .norm_weight = NormWeight::kZeroCentered};
}

Result<int64_t> read_num_mtp_layers(const ModelConfig& config, const char* key, int64_t fallback) {
  ASSIGN_OR_RETURN(const int64_t count,
                   config.extension().get_int(key, 0, kMaxMtpLayers, fallback));
  if (count > 0) return count;
  return invalid_argument(
      "--method mtp: the checkpoint has no layer for multi-token prediction ('{}' of config.json "
      "is 0); expected ngram, eagle3 or off",
      key);
}

MtpHead::Layer::Layer(BuildContext& build,
                      const MtpSpec& spec,
                      const RotaryEmbedding& rotary,
                      const MtpSpec::Names& names,
                      int index)
    : embedding_norm(build, build.config.hidden_size, spec.norm_weight),
      hidden_norm(build, build.config.hidden_size, spec.norm_weight),
      projection(ModuleScope(build, names.projection),
                 2 * build.config.hidden_size,
                 build.config.hidden_size,
                 /*has_bias=*/false),
      decoder(make_decoder_layer(build, spec, rotary, names, index)),
      final_norm(build, build.config.hidden_size, spec.norm_weight) {}

MtpHead::MtpHead(BuildContext& build, const CausalLM& target, const MtpSpec& spec)
    : target_(target),
      hidden_size_(build.config.hidden_size),
      vocab_size_(build.config.vocab_size),
      dtype_(build.dtype),
      rotary_(build),
      head_(build, target.lm_head()) {
  register_module("rotary", &rotary_);
  register_module("", &head_);
  for (const MtpSpec::Names& names : spec.layers) {
    const auto index = static_cast<int>(layers_.size());
    Layer& layer =
        *layers_.emplace_back(std::make_unique<Layer>(build, spec, rotary_, names, index));
    register_module(names.embedding_norm, &layer.embedding_norm);
    register_module(names.hidden_norm, &layer.hidden_norm);
    register_module(names.projection, &layer.projection);
    register_module(names.layer, layer.decoder.get());
    register_module(names.final_norm, &layer.final_norm);
  }
}

Tensor MtpHead::forward(const Tensor& hidden,
                        const Tensor& hidden_rows,
                        int draft,
                        const ForwardContext& context) const {
  const Layer& layer = *layers_[std::min(draft, num_layers() - 1)];
  const int64_t num_tokens = context.num_tokens();
  const Tensor pair = context.workspace.tensor({num_tokens, 2 * hidden_size_}, dtype_);
  const Tensor embedded = pair.narrow(1, 0, hidden_size_);
  const Tensor state = pair.narrow(1, hidden_size_, hidden_size_);
  target_.embed_tokens().forward(context.token_ids, embedded, context);
  ops::embedding(context.stream, hidden_rows, hidden, state);
  layer.embedding_norm.forward(embedded, context);
  layer.hidden_norm.forward(state, context);

  ResidualStream residual;
  residual.sum = layer.projection.forward(pair, context);
  residual.update = context.workspace.tensor({num_tokens, hidden_size_}, dtype_);
  layer.decoder->forward(residual, context);
  return add_and_normalize(layer.final_norm, residual, {}, context).rows;
}

void MtpHead::compute_logits(const Tensor& hidden,
                             const Tensor& logits,
                             const ForwardContext& context) const {
  head_.forward(hidden, logits, context);
}

}  // namespace atom
