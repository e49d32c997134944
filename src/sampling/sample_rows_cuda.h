// Chooses the next token of each row of logits on a GPU, as sampling/sampler.h does on a CPU:
// edits, temperature, filters, draw, with the same noise. Sums of probabilities are rounded
// differently, so a filter's border may fall on the other side of a token only where those sums
// decide in their last bits; every other choice is the CPU's.
//
// All arrays are device memory and a row's parameters are read when its kernel runs, so a captured
// graph serves every step.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom {

// What one token's logit goes through before it is looked at; several entries of one row name
// different tokens.
struct LogitEdit {
  int32_t token_id = 0;
  float bias = 0;
  int32_t num_generated = 0;  // of a seen token: times in the answer
  bool is_forbidden = false;  // becomes -inf first
  bool is_seen = false;       // the penalties concern it
};

struct SampleRowParams {
  uint64_t seed = 0;
  uint32_t position = 0;          // that addresses the noise
  int32_t vocab_size = 0;         // tokens that may be chosen
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
  int32_t allowed_row = -1;  // of the step's bitmasks; -1: all tokens
};

struct SampleRowsLaunch {
  float* logits = nullptr;                // [num_rows, vocab]; edits change it
  const SampleRowParams* rows = nullptr;  // [num_rows]
  const LogitEdit* edits = nullptr;
  const uint32_t* allowed = nullptr;  // bitmasks as in logit_edits.h
  int32_t* token_ids = nullptr;       // [num_rows], or a fault of argmax_cuda.h
  int64_t logits_stride = 0;          // elements
  int64_t allowed_stride = 0;         // words
  int32_t num_rows = 0;
  bool overlaps_previous = false;
};

// Applies the edits; not needed when no row has any.
gpuError_t launch_edit_logits(const SampleRowsLaunch& params, gpuStream_t stream);
gpuError_t launch_sample_rows(const SampleRowsLaunch& params, gpuStream_t stream);

constexpr int kMaxRowLogprobs = 64;

// The log-softmax of raw logits, before any edit: the token chosen for each row, then the best.
struct RowLogprobsLaunch {
  const float* logits = nullptr;         // [num_rows, vocab]
  const int32_t* chosen = nullptr;       // [num_rows]; below 0: the row is left out
  const int32_t* num_best = nullptr;     // [num_rows], 0 to max_best
  const int32_t* vocab_sizes = nullptr;  // [num_rows]
  // [num_rows, max_best + 1]: the chosen token first. Entries past a row's own are untouched.
  int32_t* token_ids = nullptr;
  float* logprobs = nullptr;
  int32_t* ranks = nullptr;
  int64_t logits_stride = 0;
  int32_t num_rows = 0;
  int32_t max_best = 0;  // at most kMaxRowLogprobs
  bool overlaps_previous = false;
};

gpuError_t launch_row_logprobs(const RowLogprobsLaunch& params, gpuStream_t stream);

}  // namespace atom
