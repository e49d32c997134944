// Reads tiktoken.model: byte strings in base64 with their ranks, a line each. A pair of tokens
// merges when it makes one, that of the lowest rank first; ids are ranks. The file says neither how
// texts are split nor which tokens are special: the pattern is that of the TikTokenTokenizer of
// Kimi's checkpoints, whose 256 ids after the last rank are special tokens that
// tokenizer_config.json names, the others "<|reserved_token_ID|>". The file may be hostile.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"

namespace atom {

// `where` (the file's name) begins each message.
Result<TokenizerParts> parse_tiktoken_model(std::string_view text,
                                            const TokenizerConfig& config,
                                            const std::string& where);

}  // namespace atom
