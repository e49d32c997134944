// How long an answer may think: counts the tokens of its reasoning, and when as many as are allowed
// have come, says which tokens have to follow to end it. Reasoning that is taken up again after it
// had ended counts on.
#pragma once

#include <cstdint>
#include <vector>

#include "config/sampling_params.h"

namespace atom {

class ThinkingBudget {
 public:
  static constexpr int32_t kAnyToken = -1;

  // Reads max_thinking_tokens and the fields about thinking. Without a budget every token may
  // come.
  explicit ThinkingBudget(const SamplingParams& params);

  // The only token that may come next, or kAnyToken.
  int32_t forced_token() const { return is_closing_ ? closing_[num_closed_] : kAnyToken; }

  // The next token of the answer.
  void append(int32_t token_id);

 private:
  bool ends_with(const std::vector<int32_t>& ids) const;
  void close_if_used_up();

  bool is_limited_;
  int64_t budget_;
  std::vector<int32_t> begin_, end_, closing_;
  bool thinks_;
  bool is_closing_ = false;
  size_t num_closed_ = 0;  // tokens of closing_ that have come
  int64_t num_thoughts_ = 0;
  std::vector<int32_t> tail_;  // the answer's last tokens, as many as matter
};

}  // namespace atom
