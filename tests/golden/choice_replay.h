// Records which experts and positions the layers of a model choose for the tokens of prompts, and
// puts these choices in the place of those that the same model makes in another arithmetic: the
// two differ by roundings then, not by which side a near tie fell to. A replayed expert's weight is
// still what the replaying model's own logits give it. Tokens behind a prompt are left alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tests/golden/step_observer.h"

namespace atom {

class ChoiceReplay : public StepObserver {
 public:
  // From here on choices are replaced.
  void start_replay() { is_replaying_ = true; }

  void begin_step(std::vector<Token> tokens) override;

  void on_experts(const Stream& stream,
                  const Tensor& logits,
                  const ops::MoeRouting& routing,
                  const Tensor& ids,
                  const Tensor& weights) override;
  void on_positions(const Stream& stream, const Tensor& indices) override;

  // The part of all replayed experts or positions that the model had not chosen by itself; 0 of a
  // model that chooses nothing.
  double share_of_replaced() const;

 private:
  using Choice = std::vector<int32_t>;                  // ascending
  using ChoicesOfToken = std::vector<Choice>;           // in the order of layers
  using ChoicesOfPrompt = std::vector<ChoicesOfToken>;  // by position

  // Null of a token behind its prompt.
  ChoicesOfToken* choices_of(const Token& token);
  // Records `own`, or is what it has to be replaced by, null if it is the same.
  const Choice* settle(const Token& token, size_t layer, const Choice& own);
  void route(const Tensor& logits,
             ops::MoeRouting routing,
             const Tensor& ids,
             const Tensor& weights);

  ThreadPool pool_{1};
  std::map<std::vector<int32_t>, ChoicesOfPrompt> prompts_;
  bool is_replaying_ = false;
  std::vector<Token> tokens_;
  size_t next_layer_ = 0;  // of the step
  int64_t num_replayed_ = 0;
  int64_t num_replaced_ = 0;
};

}  // namespace atom
