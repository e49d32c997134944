#include "tokenizer/bpe_model.h"

#include <fmt/format.h>

#include "tokenizer/byte_level.h"
#include "tokenizer/merge_loop.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr std::string_view kWordMark = "▁";
constexpr size_t kNumDirectCharacters = 0x10000;
// Scratch larger than this is given back after a call.
constexpr size_t kMaxKeptSymbols = 1 << 20;

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {
  std::string character;
  for (int byte = 0; byte < 256; ++byte) {
    character.clear();
    append_utf8(ByteLevelAlphabet::get().to_char(static_cast<uint8_t>(byte)), &character);
    byte_ids_[byte] = vocabulary_.find(character);
    fallback_ids_[byte] =
        options_.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : -1;
  }
  if (options_.byte_level) return;
  character_ids_.assign(kNumDirectCharacters, -1);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view content = vocabulary_.content(id);
    if (content.empty() || content.size() > 3) continue;
    size_t length;
    const char32_t c = decode_utf8(content.data(), &length);
    if (length == content.size()) character_ids_[c] = id;
  }
  split_words_ = can_split_words();
}

// True when nothing merges across the border in front of a word mark that follows another
// character, so that a text without pre-tokenizer can be encoded word by word.
bool BpeModel::can_split_words() const {
  if (vocabulary_.find(kWordMark) < 0) return false;
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const MergeTable::Merge& merge = merges_.merge(static_cast<uint32_t>(rank));
    if (vocabulary_.content(merge.right).starts_with(kWordMark) &&
        !vocabulary_.content(merge.left).ends_with(kWordMark)) {
      return false;
    }
  }
  return true;
}

Status BpeModel::encode(std::string_view valid_text,
                        std::span<const TextSpan> pieces,
                        bool /*at_start*/,
                        ModelWorkspace* workspace,
                        std::vector<int32_t>* ids) const {
  const EncodeLimits& limits = workspace->limits;
  for (const TextSpan& span : pieces) {
    if (ids->size() > limits.max_tokens || limits.is_cancelled()) break;
    const std::string_view piece = valid_text.substr(span.begin, span.end - span.begin);
    if (split_words_ && piece.size() > PieceCache::kMaxPieceSize && !options_.ignore_merges) {
      append_words(piece, workspace, ids);
    } else {
      append_cached(piece, workspace, ids);
    }
  }
  if (workspace->symbols.capacity() > kMaxKeptSymbols) workspace->symbols = {};
  return {};
}

void BpeModel::append_words(std::string_view piece,
                            ModelWorkspace* workspace,
                            std::vector<int32_t>* ids) const {
  size_t begin = 0;
  while (begin < piece.size()) {
    size_t end = begin;
    while (piece.substr(end).starts_with(kWordMark)) end += kWordMark.size();
    end = std::min(piece.find(kWordMark, end), piece.size());
    append_cached(piece.substr(begin, end - begin), workspace, ids);
    begin = end;
  }
}

void BpeModel::append_cached(std::string_view piece,
                             ModelWorkspace* workspace,
                             std::vector<int32_t>* ids) const {
  const bool cached = piece.size() <= PieceCache::kMaxPieceSize;
  uint64_t hash = 0;
  if (cached) {
    hash = workspace->cache.hash(piece);
    if (workspace->cache.append(piece, hash, ids)) return;
  }
  encode_piece(piece, workspace);
  const std::vector<int32_t>& symbols = workspace->symbols;
  ids->insert(ids->end(), symbols.begin(), symbols.end());
  if (cached && !workspace->limits.is_cancelled()) workspace->cache.store(piece, hash, symbols);
}

void BpeModel::encode_piece(std::string_view piece, ModelWorkspace* workspace) const {
  std::vector<int32_t>& symbols = workspace->symbols;
  symbols.clear();
  if (options_.ignore_merges) {
    if (const int32_t id = whole_piece(piece, &workspace->text); id >= 0) {
      symbols.push_back(id);
      return;
    }
  }
  if (options_.byte_level) {
    append_bytes(piece, &symbols);
  } else {
    append_characters(piece, &symbols);
  }
  merge_symbols(merges_, 0, &symbols, workspace->limits.cancelled);
}

int32_t BpeModel::whole_piece(std::string_view piece, std::string* scratch) const {
  if (piece.size() > vocabulary_.max_content_size()) return -1;
  if (!options_.byte_level) return vocabulary_.find(piece);
  scratch->clear();
  ByteLevelAlphabet::get().append_encoded(piece, scratch);
  return vocabulary_.find(*scratch);
}

void BpeModel::append_unknown(bool after_unknown, std::vector<int32_t>* symbols) const {
  if (options_.unk_id < 0 || (after_unknown && options_.fuse_unk)) return;
  symbols->push_back(options_.unk_id);
}

void BpeModel::append_bytes(std::string_view piece, std::vector<int32_t>* symbols) const {
  symbols->reserve(piece.size());
  bool after_unknown = false;
  for (const char byte : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) {
      symbols->push_back(id);
    } else {
      append_unknown(after_unknown, symbols);
    }
    after_unknown = id < 0;
  }
}

void BpeModel::append_characters(std::string_view piece, std::vector<int32_t>* symbols) const {
  bool after_unknown = false;
  for (size_t i = 0; i < piece.size();) {
    size_t length;
    const char32_t c = decode_utf8(piece.data() + i, &length);
    const std::string_view character = piece.substr(i, length);
    i += length;
    const int32_t id = c < kNumDirectCharacters ? character_ids_[c] : vocabulary_.find(character);
    if (id >= 0) {
      symbols->push_back(id);
      after_unknown = false;
      continue;
    }
    bool all_bytes = options_.byte_fallback;
    for (const char byte : character) {
      all_bytes = all_bytes && fallback_ids_[static_cast<uint8_t>(byte)] >= 0;
    }
    if (all_bytes) {
      for (const char byte : character) {
        symbols->push_back(fallback_ids_[static_cast<uint8_t>(byte)]);
      }
      after_unknown = false;
    } else {
      append_unknown(after_unknown, symbols);
      after_unknown = true;
    }
  }
}

}  // namespace atom
