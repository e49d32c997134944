// Chooses the next token of each row of logits. A row's result depends only on its logits, its
// sequence's parameters, seed, position and history: not on the batch, the number of threads or the
// machine's instruction set. Rows are spread over the stream's pool. One call at a time.
//
// Steps of a row, as in vLLM: raw logprobs; edits (logit_edits.h); temperature; filters
// (filters.h); draw (row_kernels.h). Temperature below kGreedyTemperature takes the largest edited
// logit instead, the lowest id on a tie.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "config/token_logprobs.h"
#include "sampling/logit_edits.h"
#include "sampling/logits_row.h"
#include "sampling/sampling_state.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Below it the largest logit is taken.
constexpr float kGreedyTemperature = 1e-5f;

struct SamplingRow {
  const SamplingState* state = nullptr;  // not changed: the caller appends the token it accepts
  TokenBitmask allowed = nullptr;        // of a grammar, say
};

struct SampledToken {
  int32_t token_id = -1;   // when status is ok
  Status status;           // an error when the row's logits admit no choice
  TokenLogprobs logprobs;  // when asked for: the chosen token, then the best
};

// logits: [vocab], may be changed. The scratch is one thread's.
void sample_row(const SamplingRow& row, float* logits, RowScratch& scratch, SampledToken& out);

// A prompt token to be scored by the logits of the position before it.
struct ScoredToken {
  int32_t token_id = 0;  // in [0, vocab_size)
  int32_t num_logprobs = 0;
  int64_t vocab_size = 0;  // columns at and above are padding
};

class Sampler {
 public:
  // logits: [num_rows, vocab] float32, may be changed. rows, out: [num_rows].
  void sample(const Stream& stream,
              const Tensor& logits,
              std::span<const SamplingRow> rows,
              std::span<SampledToken> out);

  // logits: [num_rows, vocab] float32. tokens, out: [num_rows].
  void score(const Stream& stream,
             const Tensor& logits,
             std::span<const ScoredToken> tokens,
             std::span<Result<TokenLogprobs>> out);

 private:
  void for_each_row(const Stream& stream,
                    int64_t num_rows,
                    const std::function<void(int64_t row, RowScratch&)>& body);

  std::vector<RowScratch> scratch_;  // one per worker, grows to what rows need
};

}  // namespace atom
