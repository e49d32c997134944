// A SentencePiece model (tokenizer.model) through the sentencepiece library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/text_model.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace atom {

class SentencePieceModel : public TextModel {
 public:
  // `proto` is the file's bytes, `where` its name. With `legacy` every text segment gets the
  // leading space that the model asks for, without it only the first one of the input.
  static Result<std::unique_ptr<SentencePieceModel>> load(std::string_view proto,
                                                          bool legacy,
                                                          const std::string& where);
  ~SentencePieceModel() override;

  Status encode(std::string_view valid_text,
                std::span<const TextSpan> pieces,
                bool at_start,
                ModelWorkspace* workspace,
                std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  // The control pieces.
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }
  bool adds_leading_space() const { return adds_leading_space_; }
  // -1 when the model has none.
  int32_t bos_id() const;
  int32_t eos_id() const;
  int32_t unk_id() const;

 private:
  SentencePieceModel();

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  // The same model without leading space; null when it is not needed.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> without_space_;
  Vocabulary vocabulary_;
  std::vector<AddedToken> added_tokens_;
  bool adds_leading_space_ = false;
};

}  // namespace atom
