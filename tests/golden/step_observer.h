// An observer of the forward passes of a GoldenRunner, which says before each what its rows are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/forward_observer.h"

namespace atom {

class StepObserver : public ForwardObserver {
 public:
  // One row of a step.
  struct Token {
    size_t sequence;  // its place among the requests of the run
    std::span<const int32_t> prompt;
    int32_t position;

    bool is_of_prompt() const { return static_cast<size_t>(position) < prompt.size(); }
  };

  // The rows of the pass that follows.
  virtual void begin_step(std::vector<Token> tokens) = 0;

  void on_experts(
      const Stream&, const Tensor&, const ops::MoeRouting&, const Tensor&, const Tensor&) override {
  }
  void on_positions(const Stream&, const Tensor&) override {}
  void on_linear(const Stream&, const Tensor&, const ops::QuantizedRows&) override {}
};

}  // namespace atom
