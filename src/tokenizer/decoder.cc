#include "tokenizer/decoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/byte_level.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr size_t kMaxStages = 16;
constexpr int64_t kMaxStrip = 1 << 20;
constexpr size_t kMaxReplaceSize = 256;  // of the pattern and of the content, in bytes

// The byte that "<0xHH>" stands for, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t i = text.find(from); i != std::string_view::npos; i = text.find(from, done)) {
    out.append(text.substr(done, i - done)).append(to);
    done = i + from.size();
  }
  out.append(text.substr(done));
  return out;
}

// `token` without up to `start` leading and `stop` trailing `content`.
std::string_view strip_token(std::string_view token,
                             std::string_view content,
                             int64_t start,
                             int64_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return token;
}

}  // namespace

Result<Decoder> Decoder::parse(const Json& component, std::string_view where) {
  Decoder decoder;
  if (component.is_null()) {
    decoder.stages_.push_back({.kind = Stage::Kind::kJoin});
    return decoder;
  }
  bool fused = false;
  RETURN_IF_ERROR(decoder.add(component, &fused, where));
  return decoder;
}

Decoder Decoder::sentencepiece(bool strip_leading_space) {
  Decoder decoder;
  decoder.stages_.push_back({.kind = Stage::Kind::kReplace, .pattern = "▁", .content = " "});
  decoder.stages_.push_back({.kind = Stage::Kind::kByteFallback});
  if (strip_leading_space) {
    decoder.stages_.push_back(
        {.kind = Stage::Kind::kStrip, .fused = true, .content = " ", .strip_start = 1});
  }
  return decoder;
}

Status Decoder::add(const Json& component, bool* fused, std::string_view where) {
  ASSIGN_OR_RETURN(const std::string type, component_type(component, where));
  if (stages_.size() >= kMaxStages) {
    return invalid_argument("{}: more than {} decoders", where, kMaxStages);
  }
  const bool needs_tokens = type == "ByteLevel" || type == "ByteFallback" || type == "Metaspace";
  if (needs_tokens && *fused) {
    return unimplemented("{}: \"{}\" after Fuse or ByteLevel is not supported", where, type);
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* parts, required_array(component, "decoders", where));
    for (const Json& part : *parts) RETURN_IF_ERROR(add(part, fused, where));
  } else if (type == "ByteLevel") {
    stages_.push_back({.kind = Stage::Kind::kByteLevel});
    *fused = true;
  } else if (type == "ByteFallback") {
    stages_.push_back({.kind = Stage::Kind::kByteFallback});
  } else if (type == "Fuse") {
    *fused = true;
  } else if (type == "Metaspace") {
    Stage stage{.kind = Stage::Kind::kMetaspace};
    ASSIGN_OR_RETURN(stage.pattern, optional_string(component, "replacement", "▁", where));
    if (count_code_points(stage.pattern) != 1) {
      return invalid_argument("{}: \"replacement\" must be one character", where);
    }
    ASSIGN_OR_RETURN(const bool legacy, optional_bool(component, "add_prefix_space", true, where));
    ASSIGN_OR_RETURN(
        const std::string scheme,
        optional_string(component, "prepend_scheme", legacy ? "always" : "never", where));
    stage.drop_in_first = scheme != "never";
    stages_.push_back(std::move(stage));
  } else if (type == "Replace") {
    return add_replace(component, *fused, where);
  } else if (type == "Strip") {
    return add_strip(component, *fused, where);
  } else {
    return unimplemented(
        "{}: the decoder \"{}\" is not supported; supported are ByteFallback, ByteLevel, Fuse, "
        "Metaspace, Replace, Sequence and Strip",
        where,
        type);
  }
  return {};
}

Status Decoder::add_replace(const Json& component, bool fused, std::string_view where) {
  ASSIGN_OR_RETURN(JsonPattern pattern, required_pattern(component, where));
  if (pattern.is_regex) {
    return unimplemented("{}: Replace with a regular expression is not supported in a decoder",
                         where);
  }
  ASSIGN_OR_RETURN(std::string content, required_string(component, "content", where));
  if (pattern.text.size() > kMaxReplaceSize || content.size() > kMaxReplaceSize) {
    return invalid_argument(
        "{}: Replace takes a pattern and a content of at most {} bytes", where, kMaxReplaceSize);
  }
  stages_.push_back({.kind = Stage::Kind::kReplace,
                     .fused = fused,
                     .pattern = std::move(pattern.text),
                     .content = std::move(content)});
  return {};
}

Status Decoder::add_strip(const Json& component, bool fused, std::string_view where) {
  Stage stage{.kind = Stage::Kind::kStrip, .fused = fused};
  ASSIGN_OR_RETURN(stage.content, required_string(component, "content", where));
  ASSIGN_OR_RETURN(stage.strip_start, required_int(component, "start", 0, kMaxStrip, where));
  ASSIGN_OR_RETURN(stage.strip_stop, required_int(component, "stop", 0, kMaxStrip, where));
  if (count_code_points(stage.content) != 1) {
    return invalid_argument("{}: \"content\" of Strip must be one character", where);
  }
  stages_.push_back(std::move(stage));
  return {};
}

DecoderState Decoder::start() const {
  DecoderState state;
  state.stages.resize(stages_.size());
  return state;
}

void Decoder::push(std::string_view token, DecoderState* state, std::string* out) const {
  run(0, token, state, out);
}

void Decoder::run(size_t stage,
                  std::string_view text,
                  DecoderState* state,
                  std::string* out) const {
  if (stage == stages_.size()) {
    out->append(text);
    return;
  }
  const Stage& at = stages_[stage];
  DecoderState::Stage& own = state->stages[stage];
  switch (at.kind) {
    case Stage::Kind::kJoin:
      if (own.started) out->push_back(' ');
      own.started = true;
      run(stage + 1, text, state, out);
      return;
    case Stage::Kind::kByteLevel:
      if (!ByteLevelAlphabet::get().append_decoded(text, &own.held)) own.held.append(text);
      run_bytes(stage, false, state, out);
      return;
    case Stage::Kind::kByteFallback:
      if (const int byte = fallback_byte(text); byte >= 0) {
        own.held.push_back(static_cast<char>(byte));
        run_bytes(stage, false, state, out);
      } else {
        run_bytes(stage, true, state, out);
        run(stage + 1, text, state, out);
      }
      return;
    case Stage::Kind::kMetaspace: {
      const bool drop = at.drop_in_first && !own.started;
      own.started = true;
      run(stage + 1, replace_all(text, at.pattern, drop ? "" : " "), state, out);
      return;
    }
    case Stage::Kind::kReplace:
      run_replace(stage, text, state, out);
      return;
    case Stage::Kind::kStrip:
      run_strip(stage, text, state, out);
      return;
  }
}

void Decoder::run_bytes(size_t stage, bool final, DecoderState* state, std::string* out) const {
  std::string& held = state->stages[stage].held;
  if (held.empty()) return;
  const bool per_byte = stages_[stage].kind == Stage::Kind::kByteFallback;
  std::string text;
  size_t i = 0;
  while (i < held.size()) {
    const auto beyond_ascii = std::find_if(
        held.begin() + static_cast<ptrdiff_t>(i), held.end(), [](char c) { return c < 0; });
    const auto num_ascii = static_cast<size_t>(beyond_ascii - held.begin()) - i;
    if (num_ascii > 0) {
      text.append(held, i, num_ascii);
      i += num_ascii;
      continue;
    }
    const Utf8Prefix prefix = inspect_utf8(std::string_view(held).substr(i, 4));
    if (prefix.kind == Utf8Prefix::Kind::kIncomplete && !final) break;
    if (prefix.kind == Utf8Prefix::Kind::kValid) {
      text.append(held, i, prefix.length);
      i += prefix.length;
    } else {
      text.append(kReplacementCharacter);
      i += per_byte ? 1 : prefix.length;
    }
  }
  held.erase(0, i);
  if (!text.empty()) run(stage + 1, text, state, out);
}

void Decoder::run_replace(size_t stage,
                          std::string_view text,
                          DecoderState* state,
                          std::string* out) const {
  const Stage& at = stages_[stage];
  if (!at.fused) {
    if (text.find(at.pattern) == std::string_view::npos) {
      run(stage + 1, text, state, out);
    } else {
      run(stage + 1, replace_all(text, at.pattern, at.content), state, out);
    }
    return;
  }
  // The running text may end within the pattern: hold back what could begin it.
  std::string& held = state->stages[stage].held;
  held.append(text);
  std::string done;
  size_t begin = 0;
  for (size_t i = held.find(at.pattern); i != std::string::npos; i = held.find(at.pattern, begin)) {
    done.append(held, begin, i - begin).append(at.content);
    begin = i + at.pattern.size();
  }
  size_t keep = std::min(at.pattern.size() - 1, held.size() - begin);
  while (keep > 0 && held.compare(held.size() - keep, keep, at.pattern, 0, keep) != 0) --keep;
  done.append(held, begin, held.size() - keep - begin);
  held.erase(0, held.size() - keep);
  if (!done.empty()) run(stage + 1, done, state, out);
}

void Decoder::run_strip(size_t stage,
                        std::string_view text,
                        DecoderState* state,
                        std::string* out) const {
  const Stage& at = stages_[stage];
  if (!at.fused) {
    run(stage + 1, strip_token(text, at.content, at.strip_start, at.strip_stop), state, out);
    return;
  }
  DecoderState::Stage& own = state->stages[stage];
  while (!own.started && !text.empty()) {
    if (own.num_seen == at.strip_start || !text.starts_with(at.content)) {
      own.started = true;
    } else {
      text.remove_prefix(at.content.size());
      ++own.num_seen;
    }
  }
  if (at.strip_stop == 0) {
    if (!text.empty()) run(stage + 1, text, state, out);
    return;
  }
  own.held.append(text);
  const std::string_view kept = strip_token(own.held, at.content, 0, at.strip_stop);
  const std::string ready(kept);
  own.held.erase(0, kept.size());
  if (!ready.empty()) run(stage + 1, ready, state, out);
}

void Decoder::finish(DecoderState* state, std::string* out) const {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    std::string& held = state->stages[stage].held;
    switch (stages_[stage].kind) {
      case Stage::Kind::kByteLevel:
      case Stage::Kind::kByteFallback:
        run_bytes(stage, true, state, out);
        break;
      case Stage::Kind::kReplace:
        if (!held.empty()) run(stage + 1, std::exchange(held, {}), state, out);
        break;
      default:
        held.clear();  // what Strip held back is what it strips
        break;
    }
  }
}

std::string Decoder::token_bytes(std::string_view token) const {
  std::string bytes(token);
  for (const Stage& stage : stages_) {
    if (stage.kind == Stage::Kind::kByteLevel) {
      std::string decoded;
      return ByteLevelAlphabet::get().append_decoded(bytes, &decoded) ? decoded : bytes;
    }
    if (stage.kind == Stage::Kind::kByteFallback) {
      if (const int byte = fallback_byte(bytes); byte >= 0) {
        return std::string(1, static_cast<char>(byte));
      }
    }
    if (stage.kind == Stage::Kind::kReplace)
      bytes = replace_all(bytes, stage.pattern, stage.content);
    if (stage.kind == Stage::Kind::kMetaspace) bytes = replace_all(bytes, stage.pattern, " ");
  }
  return bytes;
}

size_t Decoder::max_growth() const {
  size_t growth = 1;
  for (const Stage& stage : stages_) {
    if (stage.kind != Stage::Kind::kReplace) continue;
    const size_t ratio = (stage.content.size() + stage.pattern.size() - 1) / stage.pattern.size();
    growth = std::min(growth * std::max<size_t>(ratio, 1), size_t{1} << 20);
  }
  return growth;
}

}  // namespace atom
