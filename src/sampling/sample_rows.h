// Chooses the next token of each row of logits on a device as sampling/sampler.h does on the CPU:
// edits, temperature, filters, draw with the same noise, then log-probabilities of the raw logits.
//
// A token is the one that the CPU's Sampler chooses of the same logits: edits, weights and scores
// are the same IEEE operations. Sums of probabilities are exact here and rounded there, so the
// border that top_p draws may fall on the other side of a token where the sums decide in their last
// bits (a share below 1e-7), and a log-probability may differ in its last bits. A token that is
// biased more than once gets the sum of its biases.
//
// Everything is read when the kernels run, so a recorded graph serves every step. Plain
// declarations: the kernels' files include it.
#pragma once

#include <stdint.h>

#include "config/token_logprobs.h"

namespace atom {

// In place of a token, for a row that admits no choice: RowFault of sampling/logits_row.h.
constexpr int32_t kTokenNotANumber = -1;
constexpr int32_t kTokenNoCandidate = -2;

// The most log-probabilities of a row besides the chosen token's.
constexpr int kMaxRowLogprobs = 64;

// What one token's logit goes through first. The entries of a row name different tokens.
struct LogitEdit {
  // Below 0, in a row's last entry only: the token that the step before chose for row ~token_id,
  // generated once more than the other entries say.
  int32_t token_id = 0;
  float bias = 0;              // -infinity: the token may not come
  int32_t num_generated = -1;  // times in the answer, for the penalties; -1: they do not concern it
  float original = 0;          // the logit before: the kernels' own
};

struct SampleRowParams {
  uint64_t seed = 0;
  uint32_t position = 0;          // that addresses the noise
  int32_t vocab_size = 0;         // tokens that may be chosen; 0: a row of padding
  float temperature = 0;          // below 1e-5: the best token
  float inverse_temperature = 0;  // 1 / temperature
  float min_p_offset = 0;         // temperature * log(min_p); -infinity without min_p
  float top_p = 1;
  int32_t top_k = 0;  // 0: all
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t first_edit = 0;  // of the step's edits
  int32_t num_edits = 0;
  int32_t num_logprobs = -1;  // besides the chosen token's; -1: none at all
  int32_t mask = -1;          // which of the masks says what tokens may come; -1: all may
};

struct SampleRowsArgs {
  float* logits;                // [num_rows, vocab_size], changed
  const SampleRowParams* rows;  // [num_rows]
  LogitEdit* edits;             // of all rows; changed
  const int32_t* previous_ids;  // what the step before chose; may be token_ids
  int32_t* token_ids;           // [num_rows]: the choice, or why there is none; 0 for padding
  // [num_rows, 1 + kMaxRowLogprobs]: of rows that ask for them; rank 0 where the row has no more.
  TokenLogprob* logprobs;
  // [number of masks, mask_words]: bit id % 32 of word id / 32 is set when the token may come. Read
  // only for rows that name one.
  const uint32_t* masks;
  int64_t mask_words;
  int64_t logits_stride;  // in elements
  int64_t num_rows;
};

// On a device's queue (DeviceQueue::handle()).
void sample_rows(const SampleRowsArgs& args, void* queue);

}  // namespace atom
