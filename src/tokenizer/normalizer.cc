#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/json_fields.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

// A step that lengthens the text again and again must not exhaust the memory.
constexpr size_t kMaxNormalizedSize = size_t{1} << 30;
constexpr size_t kMaxNormalizers = 64;
// No normal form makes a text longer by more than this factor.
constexpr size_t kMaxExpansion = 12;

Status too_large() {
  return resource_exhausted("the normalized text would be larger than {} bytes",
                            kMaxNormalizedSize);
}

class NormalFormStep : public NormalizerStep {
 public:
  explicit NormalFormStep(NormalForm form) : form_(form) {}
  Result<bool> apply(std::string_view text, std::string* out) const override {
    if (is_surely_normalized(text, form_)) return false;
    if (text.size() > kMaxNormalizedSize / kMaxExpansion) return too_large();
    *out = normalize(text, form_);
    return true;
  }

 private:
  NormalForm form_;
};

class PrependStep : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<bool> apply(std::string_view text, std::string* out) const override {
    if (text.empty()) return false;
    out->assign(prefix_).append(text);
    return true;
  }

 private:
  std::string prefix_;
};

class ReplaceStep : public NormalizerStep {
 public:
  ReplaceStep(std::unique_ptr<SplitPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Result<bool> apply(std::string_view text, std::string* out) const override {
    std::vector<TextSpan> matches;
    RETURN_IF_ERROR(pattern_->find_all(text, &matches));
    if (matches.empty()) return false;
    if (text.size() + matches.size() * content_.size() > kMaxNormalizedSize) {
      return too_large();
    }
    out->clear();
    size_t done = 0;
    for (const TextSpan& match : matches) {
      out->append(text.substr(done, match.begin - done)).append(content_);
      done = match.end;
    }
    out->append(text.substr(done));
    return true;
  }

 private:
  std::unique_ptr<SplitPattern> pattern_;
  std::string content_;
};

class LowercaseStep : public NormalizerStep {
 public:
  Result<bool> apply(std::string_view text, std::string* out) const override {
    out->clear();
    out->reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      size_t length;
      const char32_t c = decode_utf8(text.data() + i, &length);
      i += length;
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
      // The one character whose full lower case is longer: I with dot above.
      if (c == 0x130) {
        out->resize(out->size() - 1);
        out->append("i\xCC\x87");
      }
    }
    return true;
  }
};

class StripStep : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  Result<bool> apply(std::string_view text, std::string* out) const override {
    size_t begin = 0, end = text.size(), length;
    while (left_ && begin < end && is_space(decode_utf8(text.data() + begin, &length))) {
      begin += length;
    }
    while (right_ && end > begin && is_space(decode_utf8_before(text, end, &length))) {
      end -= length;
    }
    if (end - begin == text.size()) return false;
    out->assign(text.substr(begin, end - begin));
    return true;
  }

 private:
  bool left_, right_;
};

}  // namespace

Result<Normalizer> Normalizer::parse(const Json& component, std::string_view where) {
  Normalizer normalizer;
  if (!component.is_null()) RETURN_IF_ERROR(normalizer.add(component, where));
  return normalizer;
}

Status Normalizer::add(const Json& component, std::string_view where) {
  ASSIGN_OR_RETURN(const std::string type, component_type(component, where));
  if (steps_.size() >= kMaxNormalizers) {
    return invalid_argument("{}: more than {} normalizers", where, kMaxNormalizers);
  }
  if (type == "NFC") {
    // A syllable of three conjoining letters, nine bytes, becomes one of three; a second time there
    // are none.
    max_shrink_ = std::min<size_t>(3 * max_shrink_, 3);
  } else if (type != "Sequence" && type != "Prepend") {
    max_shrink_ = 0;
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* parts, required_array(component, "normalizers", where));
    for (const Json& part : *parts) RETURN_IF_ERROR(add(part, where));
  } else if (type == "NFC") {
    steps_.push_back(std::make_unique<NormalFormStep>(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps_.push_back(std::make_unique<NormalFormStep>(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps_.push_back(std::make_unique<NormalFormStep>(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps_.push_back(std::make_unique<NormalFormStep>(NormalForm::kNfkd));
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, required_string(component, "prepend", where));
    steps_.push_back(std::make_unique<PrependStep>(std::move(prefix)));
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(JsonPattern pattern, required_pattern(component, where));
    ASSIGN_OR_RETURN(std::string content, required_string(component, "content", where));
    std::unique_ptr<SplitPattern> matcher;
    if (pattern.is_regex) {
      ASSIGN_OR_RETURN(matcher, make_regex_pattern(pattern.text));
    } else {
      matcher = make_string_pattern(pattern.text);
    }
    steps_.push_back(std::make_unique<ReplaceStep>(std::move(matcher), std::move(content)));
  } else if (type == "Lowercase") {
    steps_.push_back(std::make_unique<LowercaseStep>());
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, optional_bool(component, "strip_left", true, where));
    ASSIGN_OR_RETURN(const bool right, optional_bool(component, "strip_right", true, where));
    steps_.push_back(std::make_unique<StripStep>(left, right));
  } else {
    return unimplemented(
        "{}: the normalizer \"{}\" is not supported; supported are Lowercase, NFC, NFD, NFKC, "
        "NFKD, Prepend, Replace, Sequence and Strip",
        where,
        type);
  }
  return {};
}

Result<std::string_view> Normalizer::apply(std::string_view valid_text, std::string* buffer) const {
  std::string_view text = valid_text;
  std::string next;
  for (const auto& step : steps_) {
    ASSIGN_OR_RETURN(const bool changed, step->apply(text, &next));
    if (!changed) continue;
    if (next.size() > kMaxNormalizedSize) return too_large();
    buffer->swap(next);
    text = *buffer;
  }
  return text;
}

}  // namespace atom
