// The output head as draft models multiply by it: where BuildContext::float8_draft_head says so, by
// a copy in FP8, which is read in half the time. What it rounds changes guesses, not answers.
#pragma once

#include "layers/parallel_lm_head.h"

namespace atom {

class DraftHead : public Module {
 public:
  // `head`, whose finish_load comes first, outlives this.
  DraftHead(const BuildContext& build, const ParallelLMHead& head);

  // Makes the copy.
  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // See ParallelLMHead::forward().
  void forward(const Tensor& hidden, const Tensor& logits, const ForwardContext& context) const;

 private:
  bool has_copy() const { return copy_.out_features > 0; }
  void quantize_on_host(const Stream& stream);
  void quantize_on_device(const Stream& stream);

  const ParallelLMHead& head_;
  ops::LinearWeight copy_;  // of this rank's part; without rows where there is none
  int64_t max_rows_;        // that are multiplied by it
};

}  // namespace atom
