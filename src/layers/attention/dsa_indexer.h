// The indexer of DeepSeek sparse attention: queries from the normalized query latent, one key and
// the heads' weights from the layer's input; LayerNorm of the keys.
//   score(t, s) = (num_heads * head_dim)^-0.5 * sum_h w[t, h] * relu(q[t, h] . k[s])
#pragma once

#include "layers/attention/sparse_indexer.h"
#include "layers/linear/replicated_linear.h"
#include "ops/linear/linear.h"

namespace atom {

struct DsaOptions {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t top_k = 0;
  int64_t q_lora_rank = 0;   // of the latent that the queries are projected from
  bool interleaved = false;  // the rotation's pairs are (x[2i], x[2i + 1])
};

class DsaIndexer : public Module {
 public:
  DsaIndexer(BuildContext& build, const RotaryEmbedding& rotary, const DsaOptions& options);

  // The forms in which it reads the layer's input, and the latent, fastest.
  ActivationFormat wanted() const { return unite(wk_.wanted(), {}); }
  ActivationFormat wanted_latent() const { return wq_b_.wanted(); }

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // x [num_tokens, hidden_size], q_latent [num_tokens, q_lora_rank] -> [num_tokens, top_k] int32
  // (SparseIndexer).
  Tensor forward(const Activation& x,
                 const Activation& q_latent,
                 const ForwardContext& context) const;

 private:
  ReplicatedLinear wq_b_;
  ReplicatedLinear wk_;
  // The heads' weights are never quantized, and float32 when they are applied.
  Parameter weights_proj_;  // [num_heads, hidden_size], empty after finish_load
  ops::LinearWeight packed_weights_proj_;
  Parameter k_norm_weight_;  // [head_dim] float32
  Parameter k_norm_bias_;    // [head_dim] float32
  SparseIndexer indexer_;
};

}  // namespace atom
