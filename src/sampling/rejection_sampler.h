// Verifies drafts without changing what is sampled: the target samples each position with that
// position's own noise, history and limits, as it would without drafts, and a draft is accepted
// while it equals what was sampled. What comes out is therefore the text that comes out without
// drafts, token by token, at any temperature and under any filter; its distribution is the target's
// because it is made by the target's sampler alone. A sequence without drafts is sampled likewise.
// Sequences are spread over the stream's pool. One call at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace atom {

struct DraftedSequence {
  SamplingState* state = nullptr;  // is given what is sampled
  std::span<const int32_t> drafts;
  // Masks, of a grammar say: one for each draft's place and one for the place behind; empty allows
  // every token everywhere. The mask of a place supposes the drafts before it.
  std::span<const TokenBitmask> allowed = {};
};

class RejectionSampler {
 public:
  // forced_acceptance: for benchmarks, so many drafts of each sequence are accepted on average,
  // whatever is sampled; below 0: none is forced.
  explicit RejectionSampler(double forced_acceptance = -1);

  // logits: [sum of 1 + drafts of the sequences, vocab] float32, may be changed. out, one per
  // sequence: the accepted drafts, then the token behind the last of them. An error stands for the
  // token that could not be chosen, and comes last.
  void sample(const Stream& stream,
              const Tensor& logits,
              std::span<const DraftedSequence> sequences,
              std::span<std::vector<SampledToken>> out);

  // The same of rows that were sampled elsewhere, each as behind the drafts before it. sampled,
  // out: 1 + drafts of the sequence; up to as many.
  void accept(const DraftedSequence& sequence,
              std::span<SampledToken> sampled,
              std::vector<SampledToken>& out) const;

 private:
  // Row by row, until a draft is not what the row gives. sample(row, token) fills in the token.
  template <typename Sample>
  void verify(const DraftedSequence& sequence,
              std::vector<SampledToken>& out,
              const Sample& sample) const;
  void sample_one(const DraftedSequence& sequence,
                  float* logits,
                  int64_t stride,
                  RowScratch& scratch,
                  std::vector<SampledToken>& out) const;
  int32_t num_forced(const SamplingState& state) const;

  const double forced_acceptance_;
  std::vector<RowScratch> scratch_;  // one per worker
};

}  // namespace atom
