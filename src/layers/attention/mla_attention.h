// Multi-head latent attention over a paged cache of latents (DeepSeek V2 and later), absorbed: a
// token's keys and values of all heads are one row [latent | rotated key], and each head's
// projections of latents, the rows of kv_b_proj, are applied to its query and to its result.
//
// On a GPU steps of nothing but long chunks go another way, where it is not asked that a token's
// bits do not depend on how its prompt was cut: keys and values are expanded (ops/mla_prefill).
#pragma once

#include <memory>
#include <vector>

#include "layers/quant/quantized_weight.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"
#include "ops/mla_prefill/mla_prefill.h"

namespace atom {

struct MlaSizes {
  int64_t num_heads = 0;    // all ranks together
  int64_t rank = 0;         // of a latent
  int64_t nope_dim = 0;     // of a head's query and key, what is not rotated ...
  int64_t rope_dim = 0;     // ... and what is
  int64_t value_dim = 0;    // of a head
  bool interleaved = true;  // the rotation's pairs are (x[2i], x[2i + 1])
  bool selects = false;     // queries attend to positions that an indexer names

  int64_t qk_dim() const { return nope_dim + rope_dim; }
  int64_t row_size() const { return rank + rope_dim; }
};

// "kv_b_proj" of this rank's heads: W_UK [nope_dim, rank], then W_UV [value_dim, rank] of each.
// Kept for each head as it multiplies, W_UK transposed, in the model's dtype: of a quantized weight
// each value is rounded to that once, when it is loaded. On a GPU, codes of FP8 whose blocks a head
// has whole stay as they are.
class LatentProjections : public Module {
 public:
  LatentProjections(BuildContext& build, const MlaSizes& sizes);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  const std::vector<ops::LinearWeight>& of_queries() const { return of_queries_; }
  const std::vector<ops::LinearWeight>& of_values() const { return of_values_; }

  // As ops/mla_prefill takes them, where that runs.
  bool expand() const { return expand_; }
  const ops::LinearWeight& expanding_keys() const { return expanding_keys_; }
  const ops::LinearWeight& expanding_values() const { return expanding_values_; }

 private:
  // Of all heads, until the weight is finished.
  struct HeadCodes {
    Tensor queries, query_scales;  // [heads, rank, nope_dim], [heads * rank blocks, nope blocks]
    Tensor values, value_scales;   // [heads, value_dim, rank], [heads * value blocks, rank blocks]
  };
  HeadCodes codes_of_heads() const;
  void place_codes(const Stream& stream, const HeadCodes& codes);

  Tensor loaded_rows(const Stream& stream) const;
  void pack_heads(const Stream& stream, const Tensor& loaded);
  void pack_expanding(const Stream& stream, const Tensor& loaded);

  MlaSizes sizes_;
  DType dtype_;
  // One of the two, on the CPU, empty after finish_load.
  std::unique_ptr<Parameter> weight_;
  std::unique_ptr<QuantizedWeight> quantized_;
  std::vector<ops::LinearWeight> of_queries_;  // by head: [rank, nope_dim]
  std::vector<ops::LinearWeight> of_values_;   // by head: [value_dim, rank]
  bool keeps_codes_;
  bool expand_;
  ops::LinearWeight expanding_keys_, expanding_values_;  // of all heads
};

class MlaAttention : public Module {
 public:
  // Registers the layer's cache with `build`. `rotary` outlives this.
  MlaAttention(BuildContext& build, const RotaryEmbedding& rotary, const MlaSizes& sizes);

  // q [num_tokens, num_heads * qk_dim], of each head what is not rotated first, is rotated in
  // place. kv [num_tokens, 1, row_size], row stride allowed: the latent, which kv_norm is for, then
  // the key, both unspecified afterwards. `indices` [num_tokens, top_k] int32 or undefined: the
  // positions that each token attends to (ops/mla_attention). -> workspace tensor [num_tokens,
  // num_heads * value_dim].
  Tensor forward(const Tensor& q,
                 const Tensor& kv,
                 const RMSNorm& kv_norm,
                 const Tensor& indices,
                 const ForwardContext& context) const;

 private:
  void prepare_and_store(const Tensor& q,
                         const Tensor& kv,
                         const RMSNorm& kv_norm,
                         const ForwardContext& context) const;
  // Behind the rotation and the write to the cache.
  void attend(const Tensor& q,
              const Tensor& indices,
              const Tensor& out,
              const ForwardContext& context) const;
  void attend_absorbed(const Tensor& q,
                       const Tensor& indices,
                       const ops::PagedBatch& batch,
                       const Tensor& out,
                       const ForwardContext& context) const;
  // False when the batch does not go this way.
  bool attend_expanded(const Tensor& q,
                       const ops::PagedBatch& batch,
                       const Tensor& out,
                       const ForwardContext& context) const;

  const RotaryEmbedding& rotary_;
  MlaSizes sizes_;
  int64_t num_heads_;  // of this rank
  float scale_;
  bool prepares_in_one_;  // norm, rotation and cache by one kernel
  CacheHandle cache_;     // "latent", [row_size]
  LatentProjections kv_b_proj_;
};

}  // namespace atom
