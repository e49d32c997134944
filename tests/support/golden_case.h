// A golden case: the prompts of a small model and what an independent implementation computes for
// them. tests/data/golden/README.md says what the numbers are and how to compare.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom {

// Row-major float32.
struct Matrix {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  std::vector<float> values;

  std::span<const float> row(int64_t i) const {
    return std::span(values).subspan(i * num_columns, num_columns);
  }
};

struct GoldenPrompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  // those that `logits` has a row for, ascending
  Matrix logits;                   // [num_positions, vocab_size]
  // The same with the input of every quantized linear quantized too; empty where there is none.
  Matrix logits_act_quant;
  // Of the layers for multi-token prediction, empty where there are none: a row each for
  // `mtp_positions`, made of the hidden state of that position and the token behind it.
  std::vector<int32_t> mtp_positions;
  Matrix mtp_logits;
  std::vector<int32_t> greedy;        // the greedy continuation
  std::vector<float> greedy_margins;  // best minus second-best logit at each step of it
  std::vector<Matrix> hidden;         // prompt 0 only: [0] embedding ... [L] after the final norm
  double oracle_bf16_relative_error = 0;

  // The largest admissible relative error of logits computed in bf16.
  double bf16_bound() const;
};

struct GoldenCase {
  std::string folder;
  std::string name;
  std::string architecture;
  std::vector<GoldenPrompt> prompts;
};

inline constexpr double kFloat32Bound = 1e-4;
// Of float32 with quantized activations.
inline constexpr double kActQuantBound = 5e-3;
// That is for prompts of at most so many tokens: among more values some lie within float32's noise
// of the boundary of two codes, and one that falls to the other side moves all that depends on it
// by the precision of its format.
inline constexpr size_t kNumDecidedTokens = 5;
// Of a KV cache in FP8, for which there is no golden value: each key and value is off by up to
// 2^-4.
inline constexpr double kFloat8CacheBound = 0.1;
// Of the choices of experts and positions in bfloat16, the part that may differ from float32's.
inline constexpr double kNearTiesShare = 0.05;
// At a step whose margin is below this, another greedy token is no error.
inline constexpr float kDecidedMargin = 1e-3f;

Result<GoldenCase> load_golden_case(const std::string& case_folder);

// ||ours - golden|| / ||golden||; infinite when the sizes differ or a value is not finite.
double relative_error(std::span<const float> ours, std::span<const float> golden);

// What is wrong with `ours` as the greedy continuation of the prompt, "" when nothing is. After a
// step that differs without being decided the texts are different ones and are not compared.
std::string greedy_mismatch(const GoldenPrompt& prompt, std::span<const int32_t> ours);

}  // namespace atom
