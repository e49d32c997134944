// Turns the ids of one request into text as they arrive. Never gives out half a character, and the
// parts add up to what Tokenizer::decode() makes of all ids. Constant time per token. Not
// thread-safe: one object per request.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/tokenizer.h"

namespace atom {

class IncrementalDetokenizer {
 public:
  // `context`: the last ids of the prompt, a handful at most is enough. Their text is not given
  // out, but the text that follows is what it is after them (a leading space stays, a character may
  // be completed). `kept_special_ids`: special tokens that are not skipped, a handful.
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                         bool skip_special_tokens,
                         std::span<const int32_t> context = {},
                         std::vector<int32_t> kept_special_ids = {});

  // The text that became complete with this id, often empty within a character of several tokens.
  std::string append(int32_t id);
  // What was still held back. Call once, at the end.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> kept_special_ids_;
  DecoderState state_;
};

}  // namespace atom
