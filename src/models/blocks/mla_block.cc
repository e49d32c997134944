#include "models/blocks/mla_block.h"

namespace atom {
namespace {

constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxDim = 4096;

const char* q_name(const MlaOptions& options) {
  return options.q_lora_rank == 0 ? "q_proj" : "q_b_proj";
}

constexpr const char* kQueries = "q_a_proj";
constexpr const char* kKeysAndValues = "kv_a_proj_with_mqa";

QuantScheme scheme_of(BuildContext& build, const char* name) {
  const ModuleScope scope(build, name);
  return build.config.quantization.scheme_of(build.module_name);
}

bool merges_latents(BuildContext& build, const MlaOptions& options) {
  return options.q_lora_rank > 0 && build.fusions.mla_latents &&
         scheme_of(build, kQueries) == scheme_of(build, kKeysAndValues);
}

std::unique_ptr<ReplicatedLinear> make_qkv_a_proj(BuildContext& build, const MlaOptions& options) {
  if (!merges_latents(build, options)) return nullptr;
  const ModuleScope scope(build, MlaBlock::kLatents);
  const std::vector<std::pair<std::string, int64_t>> outputs = {{"q", options.q_lora_rank},
                                                                {"kv", options.sizes.row_size()}};
  return std::make_unique<ReplicatedLinear>(
      build, build.config.hidden_size, outputs, options.has_bias);
}

std::unique_ptr<ReplicatedLinear> make_q_a_proj(BuildContext& build, const MlaOptions& options) {
  if (options.q_lora_rank == 0 || merges_latents(build, options)) return nullptr;
  const ModuleScope scope(build, kQueries);
  return std::make_unique<ReplicatedLinear>(
      build, build.config.hidden_size, options.q_lora_rank, options.has_bias);
}

std::unique_ptr<ReplicatedLinear> make_kv_a_proj(BuildContext& build, const MlaOptions& options) {
  if (merges_latents(build, options)) return nullptr;
  const ModuleScope scope(build, kKeysAndValues);
  return std::make_unique<ReplicatedLinear>(
      build, build.config.hidden_size, options.sizes.row_size(), options.has_bias);
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

MlaSizes attention_sizes(const MlaOptions& options) {
  MlaSizes sizes = options.sizes;
  sizes.selects = options.indexer.has_value() || options.shares_selection;
  return sizes;
}

// The form in which the query latent's norm leaves its result.
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

MlaBlock::MlaBlock(BuildContext& build, const RotaryEmbedding& rotary, const MlaOptions& options)
    : q_lora_rank_(options.q_lora_rank),
      row_size_(options.sizes.row_size()),
      shares_selection_(options.shares_selection),
      input_codes_(build.fusions.mla_input_norm_quant),
      latent_codes_(build.fusions.mla_latents),
      qkv_a_proj_(make_qkv_a_proj(build, options)),
      q_a_proj_(make_q_a_proj(build, options)),
      kv_a_proj_(make_kv_a_proj(build, options)),
      q_a_layernorm_(make_q_a_layernorm(build, options)),
      indexer_(make_indexer(build, rotary, options)),
      q_b_proj_(ModuleScope(build, q_name(options)),
                q_a_layernorm_ == nullptr ? build.config.hidden_size : options.q_lora_rank,
                {{"", options.sizes.num_heads * options.sizes.qk_dim()}},
                /*has_bias=*/false),
      kv_a_layernorm_(build, options.sizes.rank),
      attention_(build, rotary, attention_sizes(options)),
      o_proj_(ModuleScope(build, "o_proj"),
              options.sizes.num_heads * options.sizes.value_dim,
              build.config.hidden_size,
              options.has_bias) {
  if (qkv_a_proj_ != nullptr) register_module(kLatents, qkv_a_proj_.get());
  if (q_a_proj_ != nullptr) register_module(kQueries, q_a_proj_.get());
  if (kv_a_proj_ != nullptr) register_module(kKeysAndValues, kv_a_proj_.get());
  if (q_a_layernorm_ != nullptr) register_module("q_a_layernorm", q_a_layernorm_.get());
  if (indexer_ != nullptr) register_module("indexer", indexer_.get());
  register_module(q_name(options), &q_b_proj_);
  register_module("kv_a_layernorm", &kv_a_layernorm_);
  register_module("", &attention_);
  register_module("o_proj", &o_proj_);
}

ActivationFormat MlaBlock::wanted(int64_t /*num_tokens*/) const {
  if (!input_codes_) return {};
  ActivationFormat format;
  if (qkv_a_proj_ != nullptr) {
    format = qkv_a_proj_->wanted();
  } else {
    format = q_a_proj_ == nullptr ? q_b_proj_.wanted() : q_a_proj_->wanted();
    format = unite(format, kv_a_proj_->wanted());
  }
  return indexer_ == nullptr ? format : unite(format, indexer_->wanted());
}

Tensor MlaBlock::selected(const Activation& x,
                          const Activation& latent,
                          const ForwardContext& context) const {
  if (indexer_ != nullptr) return indexer_->forward(x, latent, context);
  return shares_selection_ ? context.selected : Tensor();
}

MlaBlock::Latents MlaBlock::latents(const Activation& x, const ForwardContext& context) const {
  const int64_t num_tokens = x.num_rows();
  if (qkv_a_proj_ == nullptr) {
    const Tensor q = q_a_proj_ == nullptr ? Tensor() : q_a_proj_->forward(x, context);
    return {q, kv_a_proj_->forward(x, context).view({num_tokens, 1, row_size_})};
  }
  const Tensor both = qkv_a_proj_->forward(x, context);
  return {both.narrow(1, 0, q_lora_rank_),
          both.view({num_tokens, 1, both.size(1)}).narrow(2, q_lora_rank_, row_size_)};
}

void MlaBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  const auto [of_queries, kv] = latents(x, context);
  Activation latent = x;
  if (q_a_layernorm_ != nullptr) {
    const ActivationFormat format =
        latent_codes_ ? latent_format(q_b_proj_.wanted(), indexer_.get()) : ActivationFormat();
    latent = q_a_layernorm_->forward(of_queries, format, context);
  }
  const Tensor q = q_b_proj_.forward(latent, context);
  const Tensor indices = selected(x, latent, context);
  o_proj_.forward(attention_.forward(q, kv, kv_a_layernorm_, indices, context), out, context);
}

}  // namespace atom
