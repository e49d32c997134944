#include "server/openai/logprobs_json.h"

#include <fmt/format.h>

#include <set>

#include "base/utf8.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

void append_separator(std::string* array) {
  if (!array->empty()) array->push_back(',');
}

void append_token_entry(const TokenLogprob& entry,
                        const TokenSpelling& spelling,
                        std::string* out) {
  const std::string bytes = spelling.name(entry.token_id);
  *out += "{\"token\":";
  append_json_string(out, bytes);
  *out += ",\"logprob\":";
  append_json_logprob(out, entry.logprob);
  *out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out->push_back(',');
    append_json_integer(out, static_cast<unsigned char>(bytes[i]));
  }
  out->push_back(']');
}

}  // namespace

std::string TokenSpelling::name(int32_t token_id) const {
  return by_id_ ? fmt::format("token_id:{}", token_id) : tokenizer_->token_bytes(token_id);
}

std::string TokenSpelling::text(int32_t token_id, bool skips_special_tokens) const {
  if (tokenizer_ == nullptr || (skips_special_tokens && tokenizer_->is_special(token_id)))
    return {};
  return tokenizer_->token_bytes(token_id);
}

int64_t CharacterCounter::add(std::string_view piece) {
  int64_t begin = count_;
  std::string bytes = pending_;
  bytes += piece;
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Prefix prefix = inspect_utf8(std::string_view(bytes).substr(position, 4));
    if (prefix.kind == Utf8Prefix::Kind::kIncomplete) break;
    position += prefix.length;
    ++count_;
    if (position <= pending_.size()) begin = count_;
  }
  pending_ = bytes.substr(position);
  return begin;
}

void CompletionLogprobs::append(int32_t token_id,
                                std::string_view text,
                                const TokenLogprobs& entries,
                                const TokenSpelling& spelling) {
  append_separator(&text_offset);
  append_json_integer(&text_offset, characters.add(text));
  append_separator(&tokens);
  append_json_string(&tokens, spelling.name(token_id));
  append_separator(&token_logprobs);
  append_separator(&top_logprobs);
  if (entries.empty()) {
    token_logprobs += "null";
    top_logprobs += "null";
    return;
  }
  append_json_logprob(&token_logprobs, entries.front().logprob);
  // An object by text: tokens that spell alike are one, the likelier first; the chosen one is last
  // if it is not among the top.
  top_logprobs.push_back('{');
  std::set<std::string> seen;
  const auto add = [&](const TokenLogprob& entry) {
    std::string name;
    append_json_string(&name, spelling.name(entry.token_id));
    if (!seen.insert(name).second) return;
    if (seen.size() > 1) top_logprobs.push_back(',');
    top_logprobs += name;
    top_logprobs.push_back(':');
    append_json_logprob(&top_logprobs, entry.logprob);
  };
  for (size_t i = 1; i < entries.size(); ++i) add(entries[i]);
  add(entries.front());
  top_logprobs.push_back('}');
}

void CompletionLogprobs::flush(std::string* out) {
  *out += "{\"text_offset\":[" + text_offset + "],\"token_logprobs\":[" + token_logprobs +
          "],\"tokens\":[" + tokens + "],\"top_logprobs\":[" + top_logprobs + "]}";
  for (std::string* array : {&text_offset, &token_logprobs, &tokens, &top_logprobs}) {
    array->clear();
  }
}

void append_chat_logprobs(std::span<const TokenLogprobs> tokens,
                          const TokenSpelling& spelling,
                          std::string* out) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenLogprobs& entries = tokens[i];
    if (i > 0) out->push_back(',');
    append_token_entry(entries.front(), spelling, out);
    *out += ",\"top_logprobs\":[";
    for (size_t j = 1; j < entries.size(); ++j) {
      if (j > 1) out->push_back(',');
      append_token_entry(entries[j], spelling, out);
      out->push_back('}');
    }
    *out += "]}";
  }
}

void append_prompt_logprobs(std::span<const TokenLogprobs> tokens,
                            const Tokenizer* tokenizer,
                            std::string* out) {
  *out += "[null";
  for (const TokenLogprobs& entries : tokens) {
    *out += ",{";
    std::set<int32_t> seen;
    for (const TokenLogprob& entry : entries) {
      if (!seen.insert(entry.token_id).second) continue;
      if (seen.size() > 1) out->push_back(',');
      out->push_back('"');
      append_json_integer(out, entry.token_id);
      *out += "\":{\"logprob\":";
      append_json_logprob(out, entry.logprob);
      *out += ",\"rank\":";
      append_json_integer(out, entry.rank);
      *out += ",\"decoded_token\":";
      if (tokenizer == nullptr) {
        *out += "null";
      } else {
        append_json_string(out, tokenizer->token_bytes(entry.token_id));
      }
      out->push_back('}');
    }
    out->push_back('}');
  }
  out->push_back(']');
}

}  // namespace atom::server
