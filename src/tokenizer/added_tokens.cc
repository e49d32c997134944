#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace atom {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens,
                                     std::vector<std::string> patterns)
    : tokens_(tokens), patterns_(std::move(patterns)) {
  std::vector<std::string> reversed;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (patterns_[i].empty()) continue;
    reversed.emplace_back(patterns_[i].rbegin(), patterns_[i].rend());
    token_of_pattern_.push_back(static_cast<int32_t>(i));
  }
  if (reversed.empty()) return;
  automaton_ = std::make_unique<AhoCorasick>(
      std::vector<std::string_view>(reversed.begin(), reversed.end()));
}

std::vector<AddedTokenSegment> AddedTokenMatcher::find(std::string_view text) const {
  std::vector<AddedTokenSegment> matches;  // first the longest match at each place, from the right
  AhoCorasick::State state = AhoCorasick::kRoot;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (state == AhoCorasick::kRoot && automaton_->stays_at_root(byte)) continue;
    state = automaton_->next(state, byte);
    if (const int32_t pattern = automaton_->longest_match(state); pattern >= 0) {
      const int32_t token = token_of_pattern_[pattern];
      const auto begin = static_cast<uint32_t>(i);
      matches.push_back({token, begin, begin + static_cast<uint32_t>(patterns_[token].size())});
    }
  }
  std::reverse(matches.begin(), matches.end());
  // The leftmost of overlapping ones stays.
  uint32_t end = 0;
  std::erase_if(matches, [&](const AddedTokenSegment& match) {
    if (match.begin < end) return true;
    end = match.end;
    return false;
  });
  return matches;
}

void AddedTokenMatcher::split(std::string_view valid_text,
                              std::vector<AddedTokenSegment>* segments) const {
  if (valid_text.empty()) return;
  const auto size = static_cast<uint32_t>(valid_text.size());
  uint32_t done = 0;
  std::vector<AddedTokenSegment> matches;
  if (!empty()) matches = find(valid_text);
  for (AddedTokenSegment& match : matches) {
    const AddedToken& token = tokens_[match.token];
    size_t length;
    if (token.single_word) {
      if (match.begin > 0 &&
          is_word_character(decode_utf8_before(valid_text, match.begin, &length))) {
        continue;
      }
      if (match.end < size &&
          is_word_character(decode_utf8(valid_text.data() + match.end, &length))) {
        continue;
      }
    }
    if (token.lstrip) {
      while (match.begin > done && is_space(decode_utf8_before(valid_text, match.begin, &length))) {
        match.begin -= static_cast<uint32_t>(length);
      }
    }
    if (token.rstrip) {
      // What an earlier token swallowed is white space already seen.
      match.end = std::max(match.end, done);
      while (match.end < size && is_space(decode_utf8(valid_text.data() + match.end, &length))) {
        match.end += static_cast<uint32_t>(length);
      }
    }
    if (done < match.begin) segments->push_back({-1, done, match.begin});
    segments->push_back(match);
    done = std::max(done, match.end);
  }
  if (done < size) segments->push_back({-1, done, size});
}

}  // namespace atom
