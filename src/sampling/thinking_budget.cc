#include "sampling/thinking_budget.h"

#include <algorithm>

namespace atom {

ThinkingBudget::ThinkingBudget(const SamplingParams& params)
    : is_limited_(params.max_thinking_tokens.has_value() && !params.thinking_closing_ids.empty()),
      budget_(params.max_thinking_tokens.value_or(0)),
      begin_(params.thinking_begin_ids),
      end_(params.thinking_end_ids),
      closing_(params.thinking_closing_ids),
      thinks_(params.starts_thinking) {
  close_if_used_up();
}

bool ThinkingBudget::ends_with(const std::vector<int32_t>& ids) const {
  return !ids.empty() && ids.size() <= tail_.size() &&
         std::equal(ids.begin(), ids.end(), tail_.end() - static_cast<std::ptrdiff_t>(ids.size()));
}

void ThinkingBudget::append(int32_t token_id) {
  if (!is_limited_) return;
  tail_.push_back(token_id);
  if (tail_.size() > std::max({begin_.size(), end_.size(), closing_.size()})) {
    tail_.erase(tail_.begin());
  }
  if (is_closing_) {
    is_closing_ = ++num_closed_ < closing_.size();
    thinks_ = is_closing_;
    return;
  }
  if (thinks_) {
    ++num_thoughts_;
    thinks_ = !ends_with(end_);
  } else {
    thinks_ = ends_with(begin_);
  }
  close_if_used_up();
}

void ThinkingBudget::close_if_used_up() {
  if (!is_limited_ || !thinks_ || num_thoughts_ < budget_) return;
  // What ends the reasoning may have begun already.
  num_closed_ = std::min(closing_.size() - 1, tail_.size());
  while (num_closed_ > 0 && !std::equal(closing_.begin(),
                                        closing_.begin() + static_cast<std::ptrdiff_t>(num_closed_),
                                        tail_.end() - static_cast<std::ptrdiff_t>(num_closed_))) {
    --num_closed_;
  }
  is_closing_ = true;
}

}  // namespace atom
