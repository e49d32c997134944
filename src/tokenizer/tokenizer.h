// Text to token ids and back, as the checkpoint's own tokenizer does it. Immutable once loaded: all
// methods are const and safe to call from any number of threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom {

class Decoder;
struct EncodeLimits;  // text_model.h
struct TokenizerConfig;
struct TokenizerParts;

class Tokenizer {
 public:
  // Loads what lies in a checkpoint folder: tokenizer.json, or else tiktoken.model, or else
  // tokenizer.model (SentencePiece); with tokenizer_config.json, special_tokens_map.json and
  // added_tokens.json where present.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& folder);
  // The same from texts; `config_json` may be empty.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view config_json = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of a text. Any bytes are accepted: what is not valid UTF-8 counts as U+FFFD. Text that
  // spells an added token, special or not, becomes that token. `add_special_tokens` puts the ids of
  // the post-processor (a BOS, mostly) around, and what add_bos_token or add_eos_token of the
  // configuration ask for where it is not there yet. An error only past limits: a text over 128
  // MiB, or a regular expression of the file (none of the known families') that backtracks
  // endlessly.
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens) const;
  // Likewise, but kResourceExhausted beyond limits.max_tokens, without encoding the rest, and
  // kAborted when it was cancelled.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      bool add_special_tokens,
                                      const EncodeLimits& limits) const;
  // A text of more bytes has more tokens than this many. SIZE_MAX where that cannot be told.
  size_t max_text_bytes(size_t num_tokens) const;

  // The text of the ids. Unknown ids are left out, and special tokens on request; bytes that are
  // not valid UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as the vocabulary writes it ("Ġthe", "▁the", "<0x0A>"); empty for unknown ids.
  std::string id_to_token(int32_t id) const;
  // The bytes that the token stands for in the middle of a text (" the"); empty for unknown ids.
  std::string token_bytes(int32_t id) const;
  // True for tokens that decode() skips on request.
  bool is_special(int32_t id) const;
  // Largest id + 1. A model may have more rows than that.
  int32_t vocab_size() const;
  // No token stands for more bytes than this.
  size_t max_token_bytes() const;

  std::optional<int32_t> bos_token_id() const;
  std::optional<int32_t> eos_token_id() const;
  std::optional<int32_t> pad_token_id() const;
  // "bos_token", "eos_token", "pad_token", "unk_token", ...: the text of those set, for templates.
  const std::map<std::string, std::string>& special_tokens() const;

  // For IncrementalDetokenizer: how tokens become text, and the token that stands for an id in it;
  // nothing for ids to leave out.
  const Decoder& decoder() const;
  std::optional<std::string_view> token_to_decode(int32_t id, bool skip_special_tokens) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  static Result<std::shared_ptr<const Tokenizer>> make(TokenizerParts parts,
                                                       TokenizerConfig config,
                                                       const std::string& where);
  std::unique_ptr<Impl> impl_;
};

}  // namespace atom
