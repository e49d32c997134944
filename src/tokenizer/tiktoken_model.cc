#include "tokenizer/tiktoken_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tokenizer/bpe_model.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr int32_t kNumReservedTokens = 256;
// Bytes of all tokens' parts that are looked up, which grow with the square of a token.
constexpr size_t kMaxLookedUpBytes = size_t{1} << 30;

// PCRE2 has no difference of classes: what [A&&[^B]] takes is what is in A where B is not.
constexpr const char* kKimiPattern =
    R"(\p{Han}+|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// -1: not of the alphabet.
int value_of_base64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// False when `text` is not base64 with its padding.
bool decode_base64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t num_padded = i + 4 == text.size() ? padding : 0;
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const int value = j < 4 - num_padded ? value_of_base64(text[i + j]) : 0;
      if (value < 0) return false;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t j = 0; j < 3 - num_padded; ++j) {
      bytes->push_back(static_cast<char>(group >> (16 - 8 * j)));
    }
  }
  return true;
}

struct RankedToken {
  std::string bytes;
  int32_t rank;
};

Result<RankedToken> parse_line(std::string_view line, const std::string& where) {
  RankedToken token;
  const size_t space = line.find(' ');
  if (space == line.npos || !decode_base64(line.substr(0, space), &token.bytes)) {
    return invalid_argument("{}: must be a token in base64, a space and its rank", where);
  }
  const std::string_view rank = line.substr(space + 1);
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), token.rank);
  if (error != std::errc() || end != rank.data() + rank.size() || token.rank < 0 ||
      token.rank >= kMaxVocabularySize - kNumReservedTokens) {
    return invalid_argument("{}: the rank must be an integer in [0, {})",
                            where,
                            kMaxVocabularySize - kNumReservedTokens);
  }
  return token;
}

// In the order of their ranks.
Result<std::vector<RankedToken>> parse_tokens(std::string_view text, const std::string& where) {
  std::vector<RankedToken> tokens;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(RankedToken token, parse_line(line, fmt::format("{}:{}", where, number)));
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(), [](const RankedToken& a, const RankedToken& b) {
    return a.rank < b.rank;
  });
  return tokens;
}

using TokenIds = std::unordered_map<std::string_view, int32_t>;

// Every pair of tokens that makes a token, by the rank of that.
Result<std::vector<MergeTable::Merge>> find_merges(const std::vector<RankedToken>& tokens,
                                                   const TokenIds& ids,
                                                   const std::string& where) {
  std::vector<MergeTable::Merge> merges;
  size_t num_looked_up = 0;
  for (const RankedToken& token : tokens) {
    const std::string_view bytes = token.bytes;
    num_looked_up += bytes.size() * bytes.size();
    if (num_looked_up > kMaxLookedUpBytes) {
      return resource_exhausted("{}: the tokens are too long to find their merges", where);
    }
    for (size_t size = 1; size < bytes.size(); ++size) {
      const auto left = ids.find(bytes.substr(0, size));
      if (left == ids.end()) continue;
      const auto right = ids.find(bytes.substr(size));
      if (right != ids.end()) merges.push_back({left->second, right->second, token.rank});
    }
  }
  return merges;
}

Result<std::unique_ptr<TextModel>> make_model(const std::vector<RankedToken>& tokens,
                                              const std::string& where) {
  Vocabulary vocabulary;
  TokenIds ids;
  std::string content;
  size_t num_bytes = 0;
  for (const RankedToken& token : tokens) {
    content.clear();
    ByteLevelAlphabet::get().append_encoded(token.bytes, &content);
    if (const Status status = vocabulary.add(content, token.rank); !status.ok()) {
      return status.with_context(where);
    }
    ids.emplace(token.bytes, token.rank);
    if (token.bytes.size() == 1) ++num_bytes;
  }
  if (num_bytes != 256) {
    return invalid_argument(
        "{}: {} of the 256 bytes are tokens; all of them must be", where, num_bytes);
  }
  ASSIGN_OR_RETURN(auto merges, find_merges(tokens, ids, where));
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = true;
  return std::unique_ptr<TextModel>(
      std::make_unique<BpeModel>(std::move(vocabulary),
                                 MergeTable(std::move(merges), MergeTable::Ranks::kOfResults),
                                 options));
}

// Tokens for the ids that the configuration does not name.
std::vector<AddedToken> reserved_tokens(int32_t first_id, const TokenizerConfig& config) {
  std::array<bool, kNumReservedTokens> named{};
  for (const AddedToken& token : config.added_tokens) {
    const int64_t index = int64_t{token.id} - first_id;
    if (index >= 0 && index < kNumReservedTokens) named[index] = true;
  }
  std::vector<AddedToken> tokens;
  for (int32_t i = 0; i < kNumReservedTokens; ++i) {
    if (named[i]) continue;
    AddedToken token;
    token.id = first_id + i;
    token.content = fmt::format("<|reserved_token_{}|>", token.id);
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

Result<TokenizerParts> parse_tiktoken_model(std::string_view text,
                                            const TokenizerConfig& config,
                                            const std::string& where) {
  if (text.size() > kMaxTokenizerFileSize) {
    return resource_exhausted("{}: larger than {} bytes", where, kMaxTokenizerFileSize);
  }
  ASSIGN_OR_RETURN(const std::vector<RankedToken> tokens, parse_tokens(text, where));
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.model, make_model(tokens, where));
  parts.added_tokens = reserved_tokens(parts.model->vocabulary().size(), config);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kKimiPattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json sequence = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::parse(sequence, where));
  ASSIGN_OR_RETURN(parts.decoder, Decoder::parse({{"type", "ByteLevel"}}, where));
  return parts;
}

}  // namespace atom
