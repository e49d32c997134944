// How the tokens of passes spread over the experts of each layer. Of the thread that owns the
// runner.
#pragma once

#include <cstdint>

#include "nn/forward_observer.h"

namespace atom {

// Means over layers; shared experts, which every token has, do not count.
struct ExpertLoad {
  int64_t num_layers = 0;  // that routed; 0: the rest has no meaning
  double num_chosen = 0;   // experts that at least one token chose
  double num_choices = 0;  // of all tokens
  double largest = 0;      // tokens of the expert that most chose

  double tokens_per_chosen() const { return num_choices / num_chosen; }
};

class ExpertCounter : public ForwardObserver {
 public:
  // Of all passes so far.
  ExpertLoad load() const;

  // Waits for the stream.
  void on_experts(const Stream& stream,
                  const Tensor& logits,
                  const ops::MoeRouting& routing,
                  const Tensor& ids,
                  const Tensor& weights) override;
  void on_positions(const Stream&, const Tensor&) override {}
  void on_linear(const Stream&, const Tensor&, const ops::QuantizedRows&) override {}

 private:
  int64_t num_layers_ = 0;
  int64_t num_chosen_ = 0;
  int64_t num_choices_ = 0;
  int64_t largest_ = 0;  // summed over layers
};

}  // namespace atom
