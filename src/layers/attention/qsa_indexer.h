// The indexer of query-side aggregation, on full-attention layers of Qwen3-Next: queries, one key
// and the heads' weights by one projection of the layer's input; RMSNorm of queries and keys.
//   score(t, s) = head_dim^-0.5 * sum_h w[t, h] * activation(q[t, h] . k[s])
#pragma once

#include "layers/attention/sparse_indexer.h"
#include "layers/linear/replicated_linear.h"
#include "layers/rms_norm.h"

namespace atom {

struct QsaOptions {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t top_k = 0;
  bool has_relu = false;       // the activation; the identity without
  bool zero_centered = false;  // the norms multiply by 1 + weight
};

class QsaIndexer : public Module {
 public:
  QsaIndexer(BuildContext& build, const RotaryEmbedding& rotary, const QsaOptions& options);

  ActivationFormat wanted() const { return index_qkw_proj_.wanted(); }

  // x [num_tokens, hidden_size] -> workspace tensor [num_tokens, top_k] int32.
  Tensor forward(const Activation& x, const ForwardContext& context) const;

 private:
  QsaOptions options_;
  ReplicatedLinear index_qkw_proj_;
  RMSNorm index_q_layernorm_;
  RMSNorm index_k_layernorm_;
  SparseIndexer indexer_;
};

}  // namespace atom
