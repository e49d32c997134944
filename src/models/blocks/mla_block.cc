#include "models/blocks/mla_block.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace atom {
namespace {

constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxDim = 4096;

const char* q_name(const MlaOptions& options) {
  return options.q_lora_rank == 0 ? "q_proj" : "q_b_proj";
}

constexpr const char* kQueryLatent = "q_a_proj";
constexpr const char* kKeyLatent = "kv_a_proj_with_mqa";
constexpr const char* kFusedLatents = "fused_qkv_a_proj";
constexpr const char* kQuerySlice = "q";
constexpr const char* kKeySlice = "kv";

// Scales of blocks have this many rows.
constexpr int64_t kScaleRows = 128;

bool can_fuse_latents(const ModelConfig& config, int64_t q_lora_rank, int64_t num_layers) {
  if (q_lora_rank == 0) return false;
  const QuantConfig& quantization = config.quantization;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string block = fmt::format("model.layers.{}.self_attn.", layer);
    const QuantScheme scheme = quantization.scheme_of(block + kQueryLatent);
    if (quantization.scheme_of(block + kKeyLatent) != scheme) return false;
    if (scheme.weights == QuantType::kPer128x128 && q_lora_rank % kScaleRows != 0) return false;
  }
  return true;
}

std::unique_ptr<ReplicatedLinear> make_fused_a_proj(BuildContext& build,
                                                    const MlaOptions& options) {
  if (!options.fuses_latents) return nullptr;
  const ModuleScope scope(build, kFusedLatents);
  return std::make_unique<ReplicatedLinear>(
      build,
      build.config.hidden_size,
      std::vector<std::pair<std::string, int64_t>>{{kQuerySlice, options.q_lora_rank},
                                                   {kKeySlice, options.sizes.row_size()}},
      options.has_bias);
}

std::unique_ptr<ReplicatedLinear> make_kv_a_proj(BuildContext& build, const MlaOptions& options) {
  if (options.fuses_latents) return nullptr;
  const ModuleScope scope(build, kKeyLatent);
  return std::make_unique<ReplicatedLinear>(
      build, build.config.hidden_size, options.sizes.row_size(), options.has_bias);
}

std::unique_ptr<ReplicatedLinear> make_q_a_proj(BuildContext& build, const MlaOptions& options) {
  if (options.q_lora_rank == 0 || options.fuses_latents) return nullptr;
  const ModuleScope scope(build, kQueryLatent);
  return std::make_unique<ReplicatedLinear>(
      build, build.config.hidden_size, options.q_lora_rank, options.has_bias);
}

std::unique_ptr<RMSNorm> make_q_a_layernorm(const BuildContext& build, const MlaOptions& options) {
  if (options.q_lora_rank == 0) return nullptr;
  return std::make_unique<RMSNorm>(build, options.q_lora_rank);
}

std::unique_ptr<DsaIndexer> make_indexer(BuildContext& build,
                                         const RotaryEmbedding& rotary,
                                         const MlaOptions& options) {
  if (!options.indexer) return nullptr;
  CHECK(options.q_lora_rank > 0);
  const ModuleScope scope(build, "indexer");
  return std::make_unique<DsaIndexer>(build, rotary, *options.indexer);
}

// Of the query latent's norm.
ActivationFormat latent_format(const ActivationFormat& queries, const DsaIndexer* indexer) {
  return indexer == nullptr ? queries : unite(queries, indexer->wanted_latent());
}

}  // namespace

Result<MlaOptions> read_mla_options(const ModelConfig& config) {
  const ConfigReader reader = config.extension();
  MlaOptions options;
  MlaSizes& sizes = options.sizes;
  sizes.num_heads = config.num_attention_heads;
  ASSIGN_OR_RETURN(sizes.rank,
                   reader.require_int("kv_lora_rank", 1, kMaxRank, "the width of a latent"));
  ASSIGN_OR_RETURN(
      sizes.nope_dim,
      reader.require_int("qk_nope_head_dim", 1, kMaxDim, "the part of a head without rotation"));
  ASSIGN_OR_RETURN(
      sizes.rope_dim,
      reader.require_int("qk_rope_head_dim", 2, kMaxDim, "the part of a head that is rotated"));
  ASSIGN_OR_RETURN(sizes.value_dim,
                   reader.require_int("v_head_dim", 1, kMaxDim, "the width of a head's value"));
  ASSIGN_OR_RETURN(sizes.interleaved, reader.get_bool("rope_interleave", true));
  ASSIGN_OR_RETURN(options.q_lora_rank, reader.get_int("q_lora_rank", 0, kMaxRank, 0));
  options.has_bias = config.o_proj_bias;
  ASSIGN_OR_RETURN(const int64_t num_drafting,
                   reader.get_int("num_nextn_predict_layers", 0, kMaxDim, 0));
  options.fuses_latents =
      can_fuse_latents(config, options.q_lora_rank, config.num_hidden_layers + num_drafting);
  // Where a file has it, it is the part that is rotated.
  RETURN_IF_ERROR(reader.get_int("head_dim", sizes.rope_dim, sizes.rope_dim, 0).status());
  if (config.rope.rotary_dim != sizes.rope_dim) {
    return invalid_argument(
        "config.json: the rotation covers {} elements, 'qk_rope_head_dim' is {}; expected the same",
        config.rope.rotary_dim,
        sizes.rope_dim);
  }
  return options;
}

void map_latents(const MlaOptions& options, WeightMapping* mapping) {
  if (!options.fuses_latents) return;
  mapping->packed_modules_mapping.push_back({kQueryLatent, kFusedLatents, kQuerySlice});
  mapping->packed_modules_mapping.push_back({kKeyLatent, kFusedLatents, kKeySlice});
}

MlaBlock::MlaBlock(BuildContext& build, const RotaryEmbedding& rotary, const MlaOptions& options)
    : rank_(options.sizes.rank),
      shares_selection_(options.shares_selection),
      q_lora_rank_(options.q_lora_rank),
      fused_a_proj_(make_fused_a_proj(build, options)),
      q_a_proj_(make_q_a_proj(build, options)),
      q_a_layernorm_(make_q_a_layernorm(build, options)),
      indexer_(make_indexer(build, rotary, options)),
      q_b_proj_(ModuleScope(build, q_name(options)),
                q_lora_rank_ == 0 ? build.config.hidden_size : q_lora_rank_,
                {{"", options.sizes.num_heads * options.sizes.qk_dim()}},
                /*has_bias=*/false),
      kv_a_proj_(make_kv_a_proj(build, options)),
      kv_a_layernorm_(build, rank_),
      attention_(build, rotary, options.sizes),
      o_proj_(ModuleScope(build, "o_proj"),
              options.sizes.num_heads * options.sizes.value_dim,
              build.config.hidden_size,
              options.has_bias) {
  if (fused_a_proj_ != nullptr) register_module(kFusedLatents, fused_a_proj_.get());
  if (q_a_proj_ != nullptr) register_module(kQueryLatent, q_a_proj_.get());
  if (q_a_layernorm_ != nullptr) register_module("q_a_layernorm", q_a_layernorm_.get());
  if (indexer_ != nullptr) register_module("indexer", indexer_.get());
  register_module(q_name(options), &q_b_proj_);
  if (kv_a_proj_ != nullptr) register_module(kKeyLatent, kv_a_proj_.get());
  register_module("kv_a_layernorm", &kv_a_layernorm_);
  register_module("", &attention_);
  register_module("o_proj", &o_proj_);
}

ActivationFormat MlaBlock::wanted() const {
  ActivationFormat format;
  if (fused_a_proj_ != nullptr) {
    format = fused_a_proj_->wanted();
  } else {
    format = unite(q_a_proj_ == nullptr ? q_b_proj_.wanted() : q_a_proj_->wanted(),
                   kv_a_proj_->wanted());
  }
  return indexer_ == nullptr ? format : unite(format, indexer_->wanted());
}

Tensor MlaBlock::selected(const Activation& x,
                          const Activation& latent,
                          const ForwardContext& context) const {
  if (indexer_ != nullptr) return indexer_->forward(x, latent, context);
  return shares_selection_ ? context.selected : Tensor();
}

MlaBlock::Latents MlaBlock::project_down(const Activation& x, const ForwardContext& context) const {
  // As one head.
  const auto as_heads = [](const Tensor& rows) {
    return rows.view({rows.size(0), 1, rows.size(1)});
  };
  if (fused_a_proj_ == nullptr) {
    const Tensor queries = q_a_proj_ == nullptr ? Tensor() : q_a_proj_->forward(x, context);
    const Tensor rows = kv_a_proj_->forward(x, context);
    return {queries, rows.narrow(1, 0, rank_), as_heads(rows)};
  }
  const Tensor both = fused_a_proj_->forward(x, context);
  const int64_t row_size = both.size(1) - q_lora_rank_;
  return {both.narrow(1, 0, q_lora_rank_),
          both.narrow(1, q_lora_rank_, rank_),
          as_heads(both).narrow(2, q_lora_rank_, row_size)};
}

void MlaBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  const Latents latents = project_down(x, context);
  Activation latent = x;
  if (latents.of_queries.defined()) {
    const ActivationFormat format = latent_format(q_b_proj_.wanted(), indexer_.get());
    latent = q_a_layernorm_->forward(latents.of_queries, format, context);
  }
  const Tensor q = q_b_proj_.forward(latent, context);
  const Tensor indices = selected(x, latent, context);
  kv_a_layernorm_.forward(latents.of_keys, context);
  o_proj_.forward(attention_.forward(q, latents.rows, indices, context), out, context);
}

}  // namespace atom
