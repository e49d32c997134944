// What the indexers of sparse attention share: norms and rotation of their queries and keys, a key
// cache of their own, and the selection of the positions that a query attends to.
#pragma once

#include "layers/rotary_embedding.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"

namespace atom {

struct SparseIndexerOptions {
  int64_t num_heads = 0;
  int64_t head_dim = 0;  // at least as wide as what is rotated
  int64_t top_k = 0;
  float scale = 1;           // of the scores
  bool has_relu = false;     // of a head's product with a key, before the heads are summed
  bool interleaved = false;  // the rotation's pairs are (x[2i], x[2i + 1])
};

// [head_dim] float32 each.
struct SparseIndexerNorms {
  Tensor q_weight;  // undefined: the queries are not normalized
  Tensor k_weight;
  Tensor k_bias;  // undefined: RMSNorm, else LayerNorm
  float eps = 0;
};

class SparseIndexer {
 public:
  // `rotary` outlives this. Registers the key cache with `build`.
  SparseIndexer(BuildContext& build,
                const RotaryEmbedding& rotary,
                const SparseIndexerOptions& options);

  // q [num_tokens, num_heads * head_dim], in place; k [num_tokens, head_dim]; weights [num_tokens,
  // num_heads], of the model's dtype or float32; row strides are allowed. -> [num_tokens, top_k]
  // int32: positions in each token's sequence, ascending, then -1; context.selected if that is
  // defined, else in the workspace.
  Tensor select(const Tensor& q,
                const Tensor& k,
                const Tensor& weights,
                const SparseIndexerNorms& norms,
                const ForwardContext& context) const;

 private:
  const RotaryEmbedding& rotary_;
  SparseIndexerOptions options_;
  CacheHandle cache_;  // "index_key", [head_dim]
};

}  // namespace atom
