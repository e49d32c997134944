// What a tokenizer takes from the files beside tokenizer.json: tokenizer_config.json, and for old
// checkpoints special_tokens_map.json and added_tokens.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tokenizer/added_tokens.h"

namespace atom {

struct TokenizerConfig {
  std::optional<bool> add_bos_token, add_eos_token;
  bool legacy = true;  // SentencePiece: every segment between special tokens gets a leading space
  // "bos_token", "eos_token", "pad_token", "unk_token", ...: the token's text. Only those set.
  std::map<std::string, std::string> special_tokens;
  // Texts of further special tokens.
  std::vector<std::string> extra_special_tokens;
  // added_tokens_decoder, and added_tokens.json.
  std::vector<AddedToken> added_tokens;
};

// Reads what is there of `folder`'s files; none is required.
Result<TokenizerConfig> read_tokenizer_config(const std::string& folder);
// `config` as tokenizer_config.json holds it.
Result<TokenizerConfig> parse_tokenizer_config(const Json& config, const std::string& where);

}  // namespace atom
