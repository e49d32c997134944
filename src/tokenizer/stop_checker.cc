#include "tokenizer/stop_checker.h"

#include <utility>

namespace atom {

StopStringMatcher::StopStringMatcher(std::vector<std::string> stop_strings, bool include_stop)
    : stop_strings_(std::move(stop_strings)), include_stop_(include_stop) {
  std::vector<std::string_view> patterns;
  for (size_t i = 0; i < stop_strings_.size(); ++i) {
    if (stop_strings_[i].empty()) continue;
    patterns.emplace_back(stop_strings_[i]);
    index_of_pattern_.push_back(static_cast<int>(i));
  }
  if (!patterns.empty()) automaton_ = std::make_unique<AhoCorasick>(patterns);
}

StopStringMatcher::Output StopStringMatcher::feed(std::string_view new_text) {
  Output output;
  if (found_) {
    output.found = true;
    return output;
  }
  if (automaton_ == nullptr) {
    output.text = new_text;
    return output;
  }
  output.text = std::exchange(held_, {});
  for (size_t i = 0; i < new_text.size(); ++i) {
    state_ = automaton_->next(state_, static_cast<uint8_t>(new_text[i]));
    const int32_t pattern = automaton_->longest_match(state_);
    if (pattern < 0) continue;
    output.text.append(new_text.substr(0, i + 1));
    output.stop_index = index_of_pattern_[pattern];
    output.found = found_ = true;
    if (!include_stop_) {
      output.text.resize(output.text.size() - stop_strings_[output.stop_index].size());
    }
    return output;
  }
  output.text.append(new_text);
  // The held bytes are part of what the state stands for, or were given up by it.
  const size_t num_ready = output.text.size() - automaton_->depth(state_);
  held_ = output.text.substr(num_ready);
  output.text.resize(num_ready);
  return output;
}

std::string StopStringMatcher::finish() {
  state_ = AhoCorasick::kRoot;
  return std::exchange(held_, {});
}

}  // namespace atom
