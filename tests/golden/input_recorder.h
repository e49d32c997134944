// Records what the linear layers of a model read for each token of its prompts.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "tests/golden/step_observer.h"

namespace atom {

// A row that a linear layer read.
struct LinearInput {
  std::vector<float> values;  // codes times their scales, or the row itself
  std::vector<float> scales;  // of codes
  bool operator==(const LinearInput&) const = default;

  bool is_quantized() const { return !scales.empty(); }
};

// By position, and there in the order of layers.
using LinearInputs = std::vector<std::vector<LinearInput>>;

class InputRecorder : public StepObserver {
 public:
  void begin_step(std::vector<Token> tokens) override;
  void on_linear(const Stream& stream,
                 const Tensor& rows,
                 const ops::QuantizedRows& codes) override;

  // Before a run.
  void clear() { sequences_.clear(); }

  // For the tokens of a sequence's prompt, of the last time that each was computed. What it did not
  // compute, because a cache had it, is that of the `earlier` sequence of the same prompt.
  LinearInputs inputs_of(size_t sequence, size_t earlier) const;

 private:
  std::vector<LinearInput>& inputs_of(const Token& token);

  std::vector<Token> tokens_;
  std::map<size_t, LinearInputs> sequences_;
};

}  // namespace atom
