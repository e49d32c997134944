// Byte-pair encoding over a vocabulary of strings, as in tokenizer.json. The alphabet is
// characters, or bytes when the pre-tokenizer is ByteLevel.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/text_model.h"

namespace atom {

struct BpeOptions {
  bool byte_level = false;     // the vocabulary is written in the byte-level alphabet
  bool byte_fallback = false;  // characters not in the vocabulary become <0xHH> tokens
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges
  bool fuse_unk = false;       // adjacent unknown characters make one unknown token
  int32_t unk_id = -1;         // -1: unknown characters are dropped
};

class BpeModel : public TextModel {
 public:
  BpeModel(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options);

  Status encode(std::string_view valid_text,
                std::span<const TextSpan> pieces,
                bool at_start,
                ModelWorkspace* workspace,
                std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  void encode_piece(std::string_view piece, ModelWorkspace* workspace) const;
  void append_words(std::string_view piece,
                    ModelWorkspace* workspace,
                    std::vector<int32_t>* ids) const;
  void append_cached(std::string_view piece,
                     ModelWorkspace* workspace,
                     std::vector<int32_t>* ids) const;
  int32_t whole_piece(std::string_view piece, std::string* scratch) const;
  void append_characters(std::string_view piece, std::vector<int32_t>* symbols) const;
  void append_bytes(std::string_view piece, std::vector<int32_t>* symbols) const;
  void append_unknown(bool after_unknown, std::vector<int32_t>* symbols) const;
  bool can_split_words() const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_ids_;      // byte_level: of the byte's character
  std::array<int32_t, 256> fallback_ids_;  // byte_fallback: of <0xHH>
  std::vector<int32_t> character_ids_;     // not byte_level: by code point below 0x10000
  bool split_words_ = false;
};

}  // namespace atom
