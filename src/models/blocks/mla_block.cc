#include "models/blocks/mla_block.h"

namespace atom {
namespace {

constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxDim = 4096;

const char* q_name(const MlaOptions& options) {
  return options.q_lora_rank == 0 ? "q_proj" : "q_b_proj";
}

std::unique_ptr<ReplicatedLinear> make_q_a_proj(BuildContext& build, const MlaOptions& options) {
  if (options.q_lora_rank == 0) return nullptr;
  const ModuleScope scope(build, "q_a_proj");
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
    : rank_(options.sizes.rank),
      shares_selection_(options.shares_selection),
      q_a_proj_(make_q_a_proj(build, options)),
      q_a_layernorm_(make_q_a_layernorm(build, options)),
      indexer_(make_indexer(build, rotary, options)),
      q_b_proj_(ModuleScope(build, q_name(options)),
                q_a_proj_ == nullptr ? build.config.hidden_size : options.q_lora_rank,
                {{"", options.sizes.num_heads * options.sizes.qk_dim()}},
                /*has_bias=*/false),
      kv_a_proj_(ModuleScope(build, "kv_a_proj_with_mqa"),
                 build.config.hidden_size,
                 options.sizes.row_size(),
                 options.has_bias),
      kv_a_layernorm_(build, rank_),
      attention_(build, rotary, attention_sizes(options)),
      o_proj_(ModuleScope(build, "o_proj"),
              options.sizes.num_heads * options.sizes.value_dim,
              build.config.hidden_size,
              options.has_bias) {
  if (q_a_proj_ != nullptr) {
    register_module("q_a_proj", q_a_proj_.get());
    register_module("q_a_layernorm", q_a_layernorm_.get());
  }
  if (indexer_ != nullptr) register_module("indexer", indexer_.get());
  register_module(q_name(options), &q_b_proj_);
  register_module("kv_a_proj_with_mqa", &kv_a_proj_);
  register_module("kv_a_layernorm", &kv_a_layernorm_);
  register_module("", &attention_);
  register_module("o_proj", &o_proj_);
}

ActivationFormat MlaBlock::wanted() const {
  const ActivationFormat format =
      unite(q_a_proj_ == nullptr ? q_b_proj_.wanted() : q_a_proj_->wanted(), kv_a_proj_.wanted());
  return indexer_ == nullptr ? format : unite(format, indexer_->wanted());
}

Tensor MlaBlock::selected(const Activation& x,
                          const Activation& latent,
                          const ForwardContext& context) const {
  if (indexer_ != nullptr) return indexer_->forward(x, latent, context);
  return shares_selection_ ? context.selected : Tensor();
}

void MlaBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  Activation latent = x;
  if (q_a_proj_ != nullptr) {
    const ActivationFormat format = latent_format(q_b_proj_.wanted(), indexer_.get());
    latent = q_a_layernorm_->forward(q_a_proj_->forward(x, context), format, context);
  }
  const Tensor q = q_b_proj_.forward(latent, context);
  const Tensor indices = selected(x, latent, context);
  const Tensor kv = kv_a_proj_.forward(x, context);
  kv_a_layernorm_.forward(kv.narrow(1, 0, rank_), context);
  o_proj_.forward(attention_.forward(q, kv, indices, context), out, context);
}

}  // namespace atom
