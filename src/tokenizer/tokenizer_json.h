// Reads tokenizer.json. The file may be hostile: sizes are bounded and every error names the entry.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_model.h"

namespace atom {

inline constexpr size_t kMaxTokenizerFileSize = size_t{256} << 20;
// Of all added tokens together, as the file has them and as the normalizer makes them.
inline constexpr size_t kMaxAddedTokenBytes = 16 << 20;

struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TextModel> model;
  PostProcessor post_processor;
  Decoder decoder;
};

// `where` (a file name) begins each message.
Result<TokenizerParts> parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace atom
