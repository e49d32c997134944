// Arbitrary bytes as a tokenizer.json and a text: parse, encode, decode whole and streamed.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_checker.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

// A small byte-level tokenizer, so that texts are tried when the input is no tokenizer.json.
constexpr std::string_view kFallbackTokenizer =
    R"({
  "added_tokens": [{"id": 9, "content": "<x>", "lstrip": true, "rstrip": true, "special": true},
                   {"id": 10, "content": "ab", "single_word": true, "normalized": true}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex":
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    "behavior": "Isolated"},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": "a", "start": 1, "stop": 1}]},
  "model": {"type": "BPE", "unk_token": "?", "byte_fallback": true, "fuse_unk": true,
    "vocab": {"?": 0, "a": 1, "b": 2, "aa": 3, "aaa": 4, "<0xC3>": 5, "<0xA9>": 6, " ": 7, " a": 8},
    "merges": ["a a", ["aa", "a"], [" ", "a"]]}
})";

void check_tokenizer(const std::shared_ptr<const atom::Tokenizer>& tokenizer,
                     std::string_view text) {
  const auto encoded = tokenizer->encode(text, true);
  if (!encoded.ok()) return;
  const std::vector<int32_t>& ids = *encoded;
  for (const int32_t id : ids) {
    CHECK(id >= 0);
    CHECK(id < tokenizer->vocab_size());
    CHECK(tokenizer->token_bytes(id).size() <= tokenizer->max_token_bytes());
  }
  for (const bool skip : {false, true}) {
    const std::string whole = tokenizer->decode(ids, skip);
    CHECK(atom::is_valid_utf8(whole));
    atom::IncrementalDetokenizer detokenizer(tokenizer, skip);
    atom::StopStringMatcher stop({"\n\n", "a b"}, false);
    std::string streamed, emitted;
    for (const int32_t id : ids) {
      const std::string part = detokenizer.append(id);
      CHECK(atom::is_valid_utf8(part));
      streamed += part;
      emitted += stop.feed(part).text;
    }
    streamed += detokenizer.finish();
    CHECK(streamed == whole);
    CHECK(whole.starts_with(emitted));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atom::log::set_level(atom::log::Level::kOff);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // The text follows the first zero byte.
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(zero + 1, input.size()));
  if (const auto tokenizer = atom::Tokenizer::from_json(input.substr(0, zero)); tokenizer.ok()) {
    check_tokenizer(*tokenizer, text);
  }
  static const auto fallback = atom::Tokenizer::from_json(kFallbackTokenizer);
  CHECK(fallback.ok());
  check_tokenizer(*fallback, input);
  return 0;
}
