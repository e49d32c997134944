// Sees what a forward pass decides by comparing numbers: the experts of a token, the positions that
// sparse attention reads, the codes that activations are rounded to. What lies closer together than
// an arithmetic can tell falls either way, so whoever compares two arithmetics has to put the
// decisions of one in the place of the other's. Layers tell the observer of a ForwardContext;
// serving has none. Called by the thread that runs the pass, in the order of layers.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

namespace ops {
struct MoeRouting;
struct QuantizedRows;
}  // namespace ops

class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;

  // A router's choice, which may be replaced: logits [num_tokens, num_experts] float32, ids and
  // weights [num_tokens, top_k + num_shared].
  virtual void on_experts(const Stream& stream,
                          const Tensor& logits,
                          const ops::MoeRouting& routing,
                          const Tensor& ids,
                          const Tensor& weights) = 0;

  // An indexer's choice, which may be replaced: indices [num_tokens, top_k] int32, ascending and
  // then -1.
  virtual void on_positions(const Stream& stream, const Tensor& indices) = 0;

  // What a linear layer reads, [num_tokens, in_features]: rows, codes, or both.
  virtual void on_linear(const Stream& stream,
                         const Tensor& rows,
                         const ops::QuantizedRows& codes) = 0;
};

}  // namespace atom
