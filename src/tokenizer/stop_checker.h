// Looks for stop strings in text that arrives in parts. What could begin a stop string is held back
// until it is clear; the work is linear in the text. Not thread-safe: one object per request.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/aho_corasick.h"

namespace atom {

class StopStringMatcher {
 public:
  // Empty stop strings are ignored. With `include_stop` the text given out ends with the stop
  // string that was found, otherwise right before it.
  StopStringMatcher(std::vector<std::string> stop_strings, bool include_stop);

  struct Output {
    std::string text;     // may be given to the client now
    bool found = false;   // the text ends here
    int stop_index = -1;  // which stop string was found
  };
  // `new_text` is whole characters. Of several stop strings the one that ends first wins, and of
  // those that end together the longest. After one was found nothing more comes.
  Output feed(std::string_view new_text);
  // What is held back, when the text ends without a stop string.
  std::string finish();

 private:
  std::vector<std::string> stop_strings_;
  std::vector<int> index_of_pattern_;
  std::unique_ptr<AhoCorasick> automaton_;  // null without stop strings
  AhoCorasick::State state_ = AhoCorasick::kRoot;
  std::string held_;  // the suffix that the state stands for
  bool include_stop_;
  bool found_ = false;
};

}  // namespace atom
