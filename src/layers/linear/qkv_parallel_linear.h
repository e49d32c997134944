// The query, key and value projections in one multiplication, split by heads: rows [q | k | v].
// Where the attention's output is gated, a head of q has its gate's rows behind its own.
#pragma once

#include "layers/linear/linear_base.h"

namespace atom {

class QKVParallelLinear : public LinearBase {
 public:
  QKVParallelLinear(BuildContext& build,
                    int64_t in_features,
                    int64_t num_heads,
                    int64_t num_kv_heads,
                    int64_t head_dim,
                    bool has_bias,
                    bool has_gate = false);

  struct Output {
    Tensor q;     // [num_tokens, local num_heads, head_dim], rows strided by the packed width
    Tensor k;     // [num_tokens, local num_kv_heads, head_dim], likewise
    Tensor v;     // [num_tokens, local num_kv_heads, head_dim], likewise
    Tensor gate;  // like q; undefined without
  };
  Output forward(const Activation& x, const ForwardContext& context) const;

  int64_t num_heads() const { return num_heads_; }        // of this rank
  int64_t num_kv_heads() const { return num_kv_heads_; }  // likewise

 private:
  int64_t num_heads_;     // of this rank
  int64_t num_kv_heads_;  // of this rank
  int64_t head_dim_;
  bool has_gate_;
};

}  // namespace atom
