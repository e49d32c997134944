// One half of a decoder layer: what stands between a norm and the residual addition. Token mixers
// (attention, recurrences) and feed-forwards (dense, experts) have the same interface, so that a
// layer is any two of them.
#pragma once

#include "layers/activation.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class SubLayer : public Module {
 public:
  // The form in which it reads an input of so many tokens fastest: the union of what its consumers
  // want.
  virtual ActivationFormat wanted(int64_t num_tokens) const = 0;

  // x [num_tokens, hidden_size] -> out likewise, of the model's dtype, in other memory: this rank's
  // part of the result, which is the sum of those of the ranks that share layers. Their reader
  // completes it.
  virtual void forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const = 0;
  // False: `out` is the result itself.
  virtual bool leaves_parts() const { return true; }
};

using TokenMixer = SubLayer;
using FeedForward = SubLayer;

}  // namespace atom
