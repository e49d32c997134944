// The decoder of a tokenizer.json, as a chain of stages that tokens pass one after the other. Whole
// texts and streams run through the same code, so that the parts of a stream add up to the text.
//
// Bytes that are not valid UTF-8 become U+FFFD. A ByteLevel decoder replaces maximal subparts (as
// browsers do); ByteFallback replaces every byte by itself and keeps the valid characters around
// it. Immutable and thread-safe; a DecoderState belongs to one stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

struct DecoderState {
  struct Stage {
    std::string held;      // bytes that wait for what follows
    int64_t num_seen = 0;  // tokens, or characters stripped at the start
    bool started = false;  // text has begun: nothing more is stripped at the start
  };
  std::vector<Stage> stages;
};

class Decoder {
 public:
  // `component` may be null: the tokens joined by spaces.
  static Result<Decoder> parse(const Json& component, std::string_view where);
  // The decoder of SentencePiece models: ▁ is a space, <0xHH> a byte, and the space that encoding
  // put in front is dropped.
  static Decoder sentencepiece(bool strip_leading_space);

  DecoderState start() const;
  // Appends the text that is complete after this token.
  void push(std::string_view token, DecoderState* state, std::string* out) const;
  // Appends what was held back.
  void finish(DecoderState* state, std::string* out) const;
  // The bytes that a token stands for by itself, between other tokens.
  std::string token_bytes(std::string_view token) const;
  // token_bytes() is at most this many times as long as the token.
  size_t max_growth() const;

 private:
  struct Stage {
    enum class Kind { kJoin, kByteLevel, kByteFallback, kMetaspace, kReplace, kStrip } kind;
    // The tokens before this stage were fused: it sees one running text, not tokens.
    bool fused = false;
    std::string pattern = {};  // kReplace; kMetaspace: its replacement character
    std::string content = {};  // kReplace; kStrip: the character to strip
    int64_t strip_start = 0, strip_stop = 0;
    bool drop_in_first = false;  // kMetaspace
  };

  Status add(const Json& component, bool* fused, std::string_view where);
  Status add_replace(const Json& component, bool fused, std::string_view where);
  Status add_strip(const Json& component, bool fused, std::string_view where);
  void run(size_t stage, std::string_view text, DecoderState* state, std::string* out) const;
  void run_bytes(size_t stage, bool final, DecoderState* state, std::string* out) const;
  void run_replace(size_t stage,
                   std::string_view text,
                   DecoderState* state,
                   std::string* out) const;
  void run_strip(size_t stage, std::string_view text, DecoderState* state, std::string* out) const;

  std::vector<Stage> stages_;
};

}  // namespace atom
