#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/log.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/encode_workspace.h"
#include "tokenizer/hash.h"
#include "tokenizer/text_model.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

// Normalization makes a text up to 11 times as long, and spans count bytes in 32 bits.
constexpr size_t kMaxTextSize = size_t{64} << 20;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return hash_bytes(text, hash_seed()); }
};

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
  std::map<std::string, std::string> special_tokens;
  bool add_bos = false, add_eos = false;
  std::optional<int32_t> bos_id, eos_id, pad_id;

  // Indices into parts.added_tokens.
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> added_by_content;
  std::vector<int32_t> added_by_id;  // -1: not an added token
  std::unique_ptr<AddedTokenMatcher> raw_matcher, normalized_matcher;
  size_t max_token_bytes = 0;
  size_t max_text_bytes_per_token = 0;  // 0: no bound
  mutable WorkspacePool workspaces;

  const AddedToken* added_token(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= added_by_id.size() || added_by_id[id] < 0) {
      return nullptr;
    }
    return &parts.added_tokens[added_by_id[id]];
  }
  std::optional<int32_t> find(std::string_view content) const {
    if (const auto it = added_by_content.find(content); it != added_by_content.end()) {
      return parts.added_tokens[it->second].id;
    }
    const int32_t id = parts.model->vocabulary().find(content);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  bool contains(int32_t id) const {
    return added_token(id) != nullptr || parts.model->vocabulary().contains(id);
  }

  Status add_token(AddedToken token);
  Status add_tokens(const std::string& where);
  void add_config_tokens(const TokenizerConfig& config);
  void make_special(const std::string& content);
  Status make_matchers(const std::string& where);
  size_t find_max_text_bytes_per_token() const;
  Status encode_segment(std::string_view text,
                        bool at_start,
                        EncodeWorkspace* workspace,
                        std::vector<int32_t>* ids) const;
  Status encode_text(std::string_view text,
                     EncodeWorkspace* workspace,
                     std::vector<int32_t>* ids) const;
};

// Enters one more token into the tables.
Status Tokenizer::Impl::add_token(AddedToken token) {
  const Vocabulary& vocabulary = parts.model->vocabulary();
  if (const int32_t id = vocabulary.find(token.content); id >= 0 && id != token.id) {
    log::warning("the added token \"{}\" has id {} in the vocabulary, not {}: {} is used",
                 token.content,
                 id,
                 token.id,
                 id);
    token.id = id;
  }
  if (vocabulary.contains(token.id) && vocabulary.content(token.id) != token.content) {
    return invalid_argument("the id {} of added token \"{}\" belongs to \"{}\" in the vocabulary",
                            token.id,
                            token.content,
                            vocabulary.content(token.id));
  }
  if (const AddedToken* other = added_token(token.id); other != nullptr) {
    return invalid_argument("the id {} is given to the added tokens \"{}\" and \"{}\"",
                            token.id,
                            other->content,
                            token.content);
  }
  if (added_by_content.contains(token.content)) {
    return invalid_argument("the added token \"{}\" is listed twice", token.content);
  }
  const auto index = static_cast<int32_t>(parts.added_tokens.size());
  if (static_cast<size_t>(token.id) >= added_by_id.size()) added_by_id.resize(token.id + 1, -1);
  added_by_id[token.id] = index;
  added_by_content.emplace(token.content, index);
  max_token_bytes = std::max(max_token_bytes, token.content.size());
  parts.added_tokens.push_back(std::move(token));
  return {};
}

Status Tokenizer::Impl::add_tokens(const std::string& where) {
  std::vector<AddedToken> tokens;
  tokens.swap(parts.added_tokens);
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (const Status status = add_token(std::move(token)); !status.ok()) {
      return status.with_context(where + ": added_tokens");
    }
  }
  return {};
}

// What the companion files add. They repeat tokenizer.json for the most part, and where they
// contradict it they are not believed.
void Tokenizer::Impl::add_config_tokens(const TokenizerConfig& config) {
  for (const AddedToken& token : config.added_tokens) {
    if (token.content.empty() || added_by_content.contains(token.content)) continue;
    if (const Status status = add_token(token); !status.ok()) {
      log::warning("an added token of the tokenizer's configuration is left out: {}",
                   status.message());
    }
  }
  for (const auto& [name, content] : config.special_tokens) make_special(content);
  for (const std::string& content : config.extra_special_tokens) make_special(content);
}

void Tokenizer::Impl::make_special(const std::string& content) {
  if (content.empty()) return;
  if (const auto it = added_by_content.find(content); it != added_by_content.end()) {
    parts.added_tokens[it->second].special = true;
    return;
  }
  AddedToken token;
  token.id = parts.model->vocabulary().find(content);
  token.content = content;
  token.special = true;
  if (token.id < 0) {
    // An invented id could lie outside the model's embedding.
    log::warning("the special token \"{}\" has no id and is not looked for in texts", content);
    return;
  }
  const Status status = add_token(std::move(token));
  CHECK(status.ok());
}

Status Tokenizer::Impl::make_matchers(const std::string& where) {
  std::vector<std::string> raw(parts.added_tokens.size()), normalized(parts.added_tokens.size());
  std::string buffer;
  size_t num_bytes = 0;
  for (size_t i = 0; i < parts.added_tokens.size(); ++i) {
    const AddedToken& token = parts.added_tokens[i];
    if (token.normalized) {
      ASSIGN_OR_RETURN(const std::string_view text, parts.normalizer.apply(token.content, &buffer));
      num_bytes += text.size();
      if (num_bytes > kMaxAddedTokenBytes) {
        return resource_exhausted(
            "{}: the added tokens, normalized, have more than {} bytes together",
            where,
            kMaxAddedTokenBytes);
      }
      normalized[i] = text;
    } else {
      raw[i] = token.content;
    }
  }
  raw_matcher = std::make_unique<AddedTokenMatcher>(parts.added_tokens, std::move(raw));
  normalized_matcher =
      std::make_unique<AddedTokenMatcher>(parts.added_tokens, std::move(normalized));
  return {};
}

// The bytes of text that a token stands for at most, when every byte becomes part of one.
size_t Tokenizer::Impl::find_max_text_bytes_per_token() const {
  if (!parts.pre_tokenizer.byte_level() || !parts.pre_tokenizer.keeps_text()) return 0;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    std::string encoded;
    ByteLevelAlphabet::get().append_encoded({&text, 1}, &encoded);
    if (parts.model->vocabulary().find(encoded) < 0) return 0;
  }
  for (const AddedToken& token : parts.added_tokens) {
    if (token.lstrip || token.rstrip) return 0;  // swallows any number
  }
  return max_token_bytes * parts.normalizer.max_shrink();
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::make(TokenizerParts parts,
                                                         TokenizerConfig config,
                                                         const std::string& where) {
  auto impl = std::make_unique<Impl>();
  impl->parts = std::move(parts);
  RETURN_IF_ERROR(impl->add_tokens(where));
  impl->add_config_tokens(config);
  RETURN_IF_ERROR(impl->make_matchers(where));
  impl->special_tokens = std::move(config.special_tokens);
  const auto named_id = [&](const char* name) -> std::optional<int32_t> {
    const auto it = impl->special_tokens.find(name);
    return it == impl->special_tokens.end() ? std::nullopt : impl->find(it->second);
  };
  impl->bos_id = named_id("bos_token");
  impl->eos_id = named_id("eos_token");
  impl->pad_id = named_id("pad_token");
  impl->add_bos = config.add_bos_token.value_or(false) && impl->bos_id.has_value();
  impl->add_eos = config.add_eos_token.value_or(false) && impl->eos_id.has_value();
  for (const auto* ids :
       {&impl->parts.post_processor.prefix(), &impl->parts.post_processor.suffix()}) {
    for (const int32_t id : *ids) {
      if (impl->contains(id)) continue;
      return invalid_argument("{}: post_processor: the id {} has no token", where, id);
    }
  }
  impl->max_token_bytes =
      std::max(impl->max_token_bytes, impl->parts.model->vocabulary().max_content_size()) *
      impl->parts.decoder.max_growth();
  impl->max_text_bytes_per_token = impl->find_max_text_bytes_per_token();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Status Tokenizer::Impl::encode_segment(std::string_view text,
                                       bool at_start,
                                       EncodeWorkspace* workspace,
                                       std::vector<int32_t>* ids) const {
  ASSIGN_OR_RETURN(const std::string_view normalized,
                   parts.normalizer.apply(text, &workspace->normalized));
  workspace->normalized_segments.clear();
  normalized_matcher->split(normalized, &workspace->normalized_segments);
  for (const AddedTokenSegment& segment : workspace->normalized_segments) {
    if (segment.token >= 0) {
      ids->push_back(parts.added_tokens[segment.token].id);
      continue;
    }
    PreTokenized& pre_tokenized = workspace->pre_tokenized;
    const bool first = at_start && segment.begin == 0;
    RETURN_IF_ERROR(parts.pre_tokenizer.apply(
        normalized.substr(segment.begin, segment.end - segment.begin), first, &pre_tokenized));
    RETURN_IF_ERROR(parts.model->encode(
        pre_tokenized.text, pre_tokenized.pieces, first, &workspace->model, ids));
  }
  return {};
}

Status Tokenizer::Impl::encode_text(std::string_view text,
                                    EncodeWorkspace* workspace,
                                    std::vector<int32_t>* ids) const {
  workspace->segments.clear();
  raw_matcher->split(text, &workspace->segments);
  for (const AddedTokenSegment& segment : workspace->segments) {
    if (segment.token >= 0) {
      ids->push_back(parts.added_tokens[segment.token].id);
    } else {
      RETURN_IF_ERROR(encode_segment(text.substr(segment.begin, segment.end - segment.begin),
                                     segment.begin == 0,
                                     workspace,
                                     ids));
    }
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               bool add_special_tokens) const {
  return encode(text, add_special_tokens, EncodeLimits());
}

size_t Tokenizer::max_text_bytes(size_t num_tokens) const {
  size_t bytes = 0;
  const size_t each = impl_->max_text_bytes_per_token;
  const bool overflows = __builtin_mul_overflow(num_tokens, each, &bytes);
  return each == 0 || overflows ? SIZE_MAX : bytes;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               bool add_special_tokens,
                                               const EncodeLimits& limits) const {
  if (text.size() > kMaxTextSize) {
    return invalid_argument(
        "the text has {} bytes, at most {} can be encoded", text.size(), kMaxTextSize);
  }
  std::string sanitized;
  if (!is_valid_utf8(text)) {
    sanitized = sanitize_utf8(text);
    text = sanitized;
  }
  std::vector<int32_t> ids;
  const PostProcessor& post_processor = impl_->parts.post_processor;
  if (add_special_tokens) ids = post_processor.prefix();
  auto workspace = impl_->workspaces.take();
  workspace->model.limits = limits;
  const Status status = impl_->encode_text(text, workspace.get(), &ids);
  workspace->model.limits = {};
  impl_->workspaces.give_back(std::move(workspace));
  RETURN_IF_ERROR(status);
  if (limits.is_cancelled()) return Status(StatusCode::kAborted, "the encoding was cancelled");
  if (ids.size() > limits.max_tokens) {
    return resource_exhausted("the text has more than {} tokens", limits.max_tokens);
  }
  if (add_special_tokens) {
    ids.insert(ids.end(), post_processor.suffix().begin(), post_processor.suffix().end());
    if (impl_->add_bos && (ids.empty() || ids.front() != *impl_->bos_id)) {
      ids.insert(ids.begin(), *impl_->bos_id);
    }
    if (impl_->add_eos && (ids.empty() || ids.back() != *impl_->eos_id)) {
      ids.push_back(*impl_->eos_id);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  DecoderState state = decoder().start();
  for (const int32_t id : ids) {
    if (const auto token = token_to_decode(id, skip_special_tokens)) {
      decoder().push(*token, &state, &text);
    }
  }
  decoder().finish(&state, &text);
  return text;
}

const Decoder& Tokenizer::decoder() const {
  return impl_->parts.decoder;
}

std::optional<std::string_view> Tokenizer::token_to_decode(int32_t id,
                                                           bool skip_special_tokens) const {
  if (const AddedToken* added = impl_->added_token(id); added != nullptr) {
    if (added->special && skip_special_tokens) return std::nullopt;
    return added->content;
  }
  const Vocabulary& vocabulary = impl_->parts.model->vocabulary();
  if (!vocabulary.contains(id)) return std::nullopt;
  return vocabulary.content(id);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return impl_->find(token);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  return std::string(token_to_decode(id, false).value_or(""));
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const auto token = token_to_decode(id, false);
  return token ? decoder().token_bytes(*token) : std::string();
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = impl_->added_token(id);
  return added != nullptr && added->special;
}

int32_t Tokenizer::vocab_size() const {
  return std::max(impl_->parts.model->vocabulary().size(),
                  static_cast<int32_t>(impl_->added_by_id.size()));
}

size_t Tokenizer::max_token_bytes() const {
  return impl_->max_token_bytes;
}
std::optional<int32_t> Tokenizer::bos_token_id() const {
  return impl_->bos_id;
}
std::optional<int32_t> Tokenizer::eos_token_id() const {
  return impl_->eos_id;
}
std::optional<int32_t> Tokenizer::pad_token_id() const {
  return impl_->pad_id;
}
const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return impl_->special_tokens;
}

}  // namespace atom
