#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/json_fields.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr size_t kMaxPreTokenizers = 64;
// Steps that lengthen the text again and again must not exhaust the memory.
constexpr size_t kMaxRewrittenSize = size_t{1} << 30;

Result<SplitBehavior> parse_behavior(const std::string& name, std::string_view where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return invalid_argument(
      "{}: \"behavior\" is \"{}\"; it must be Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext or Contiguous",
      where,
      name);
}

// Appends `span`, or extends the last of the spans added since `first` by it.
void append_or_extend(bool extend, const TextSpan& span, size_t first, std::vector<TextSpan>* out) {
  if (extend && out->size() > first) {
    out->back().end = span.end;
  } else {
    out->push_back(span);
  }
}

// Turns one piece, split into matches and the gaps between them, into new pieces.
class PieceSplitter {
 public:
  PieceSplitter(SplitBehavior behavior, bool invert, std::vector<TextSpan>* out)
      : behavior_(behavior), invert_(invert), out_(out), first_(out->size()) {}

  void add(const TextSpan& span, bool is_pattern_match) {
    const bool is_match = is_pattern_match != invert_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) out_->push_back(span);
        break;
      case SplitBehavior::kIsolated:
        out_->push_back(span);
        break;
      case SplitBehavior::kContiguous:
        append_or_extend(is_match == previous_, span, first_, out_);
        break;
      case SplitBehavior::kMergedWithPrevious:
        append_or_extend(is_match && !previous_, span, first_, out_);
        break;
      case SplitBehavior::kMergedWithNext:
        // A match waits for what follows; a second match in a row stays alone.
        append_or_extend(previous_ && !is_match, span, first_, out_);
        break;
    }
    previous_ = is_match;
  }

 private:
  const SplitBehavior behavior_;
  const bool invert_;
  std::vector<TextSpan>* out_;
  const size_t first_;
  bool previous_ = false;
};

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Json& component, std::string_view where) {
  PreTokenizer pre_tokenizer;
  if (!component.is_null()) RETURN_IF_ERROR(pre_tokenizer.add(component, where));
  return pre_tokenizer;
}

Status PreTokenizer::add(const Json& component, std::string_view where) {
  ASSIGN_OR_RETURN(const std::string type, component_type(component, where));
  if (steps_.size() >= kMaxPreTokenizers) {
    return invalid_argument("{}: more than {} pre-tokenizers", where, kMaxPreTokenizers);
  }
  if (byte_level_) {
    return unimplemented(
        "{}: \"{}\" after ByteLevel is not supported; ByteLevel must be last", where, type);
  }
  const auto add_pattern = [&](std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior) {
    Step step;
    step.pattern = std::move(pattern);
    step.behavior = behavior;
    steps_.push_back(std::move(step));
  };
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* parts, required_array(component, "pretokenizers", where));
    for (const Json& part : *parts) RETURN_IF_ERROR(add(part, where));
  } else if (type == "Split") {
    return add_split(component, where);
  } else if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(const bool prefix, optional_bool(component, "add_prefix_space", true, where));
    ASSIGN_OR_RETURN(const bool use_regex, optional_bool(component, "use_regex", true, where));
    if (prefix) {
      Step step;
      step.kind = Step::Kind::kPrefixSpace;
      steps_.push_back(std::move(step));
    }
    if (use_regex) {
      ASSIGN_OR_RETURN(auto pattern, make_regex_pattern(kGpt2Pattern));
      add_pattern(std::move(pattern), SplitBehavior::kIsolated);
    }
    byte_level_ = true;
  } else if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool one, optional_bool(component, "individual_digits", false, where));
    add_pattern(make_digits_pattern(one), SplitBehavior::kIsolated);
  } else if (type == "Metaspace") {
    return add_metaspace(component, where);
  } else if (type == "Whitespace") {
    add_pattern(make_word_pattern(), SplitBehavior::kRemoved);
    steps_.back().invert = true;
  } else if (type == "WhitespaceSplit") {
    add_pattern(make_white_space_pattern(), SplitBehavior::kRemoved);
  } else if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const std::string name,
                     optional_string(component, "behavior", "Isolated", where));
    ASSIGN_OR_RETURN(const SplitBehavior behavior, parse_behavior(name, where));
    add_pattern(make_punctuation_pattern(), behavior);
  } else {
    return unimplemented(
        "{}: the pre-tokenizer \"{}\" is not supported; supported are ByteLevel, Digits, "
        "Metaspace, Punctuation, Sequence, Split, Whitespace and WhitespaceSplit",
        where,
        type);
  }
  return {};
}

Status PreTokenizer::add_split(const Json& component, std::string_view where) {
  Step step;
  ASSIGN_OR_RETURN(const JsonPattern pattern, required_pattern(component, where));
  ASSIGN_OR_RETURN(const std::string name, required_string(component, "behavior", where));
  ASSIGN_OR_RETURN(step.behavior, parse_behavior(name, where));
  ASSIGN_OR_RETURN(step.invert, optional_bool(component, "invert", false, where));
  if (pattern.is_regex) {
    ASSIGN_OR_RETURN(std::unique_ptr<SplitPattern> made, make_regex_pattern(pattern.text));
    step.pattern = std::move(made);
  } else {
    step.pattern = make_string_pattern(pattern.text);
  }
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::add_metaspace(const Json& component, std::string_view where) {
  Step step;
  step.kind = Step::Kind::kMetaspace;
  ASSIGN_OR_RETURN(step.replacement, optional_string(component, "replacement", "▁", where));
  if (step.replacement.empty() || count_code_points(step.replacement) != 1) {
    return invalid_argument("{}: \"replacement\" must be one character", where);
  }
  ASSIGN_OR_RETURN(const bool legacy_prefix,
                   optional_bool(component, "add_prefix_space", true, where));
  ASSIGN_OR_RETURN(
      const std::string scheme,
      optional_string(component, "prepend_scheme", legacy_prefix ? "always" : "never", where));
  if (scheme == "always") {
    step.prepend = Step::Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = Step::Prepend::kFirst;
  } else if (scheme != "never") {
    return invalid_argument(
        "{}: \"prepend_scheme\" is \"{}\"; it must be always, first or never", where, scheme);
  }
  ASSIGN_OR_RETURN(const bool split_words, optional_bool(component, "split", true, where));
  Step split_step;
  split_step.pattern = make_string_pattern(step.replacement);
  split_step.behavior = SplitBehavior::kMergedWithNext;
  steps_.push_back(std::move(step));
  if (split_words) steps_.push_back(std::move(split_step));
  return {};
}

bool PreTokenizer::keeps_text() const {
  return std::none_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.behavior == SplitBehavior::kRemoved;
  });
}

Status PreTokenizer::apply(std::string_view valid_text, bool at_start, PreTokenized* result) const {
  result->text = valid_text;
  result->pieces.clear();
  if (!valid_text.empty()) result->pieces.push_back({0, valid_text.size()});
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kSplit) {
      RETURN_IF_ERROR(split(step, result));
    } else {
      RETURN_IF_ERROR(rewrite(step, at_start, result));
    }
  }
  return {};
}

Status PreTokenizer::split(const Step& step, PreTokenized* result) const {
  std::vector<TextSpan>& out = result->next_pieces;
  out.clear();
  if (result->pieces.size() == 1 && step.behavior == SplitBehavior::kIsolated &&
      result->pieces[0].size() == result->text.size()) {
    // The patterns of the known families leave no gaps: their matches are the pieces.
    RETURN_IF_ERROR(step.pattern->find_all(result->text, &out));
    size_t done = 0;
    for (const TextSpan& match : out) {
      if (match.begin != done) break;
      done = match.end;
    }
    if (done == result->text.size()) {
      result->pieces.swap(out);
      return {};
    }
    out.clear();
  }
  for (const TextSpan& piece : result->pieces) {
    result->matches.clear();
    RETURN_IF_ERROR(step.pattern->find_all(
        result->text.substr(piece.begin, piece.end - piece.begin), &result->matches));
    PieceSplitter splitter(step.behavior, step.invert, &out);
    size_t done = piece.begin;
    for (const TextSpan& match : result->matches) {
      const size_t begin = piece.begin + match.begin, end = piece.begin + match.end;
      if (begin > done) splitter.add({done, begin}, false);
      splitter.add({begin, end}, true);
      done = end;
    }
    if (done < piece.end) splitter.add({done, piece.end}, false);
  }
  result->pieces.swap(out);
  return {};
}

Status PreTokenizer::rewrite(const Step& step, bool at_start, PreTokenized* result) const {
  std::string& out = result->next_buffer;
  out.clear();
  for (TextSpan& piece : result->pieces) {
    const std::string_view text = result->text.substr(piece.begin, piece.end - piece.begin);
    const size_t begin = out.size();
    if (step.kind == Step::Kind::kPrefixSpace) {
      if (text.front() != ' ') out.push_back(' ');
      out.append(text);
    } else {
      const bool first = at_start && piece.begin == 0;
      const bool prepend = step.prepend == Step::Prepend::kAlways ||
                           (step.prepend == Step::Prepend::kFirst && first);
      if (prepend && text.front() != ' ' && !text.starts_with(step.replacement)) {
        out.append(step.replacement);
      }
      for (const char c : text) {
        if (c == ' ') {
          out.append(step.replacement);
        } else {
          out.push_back(c);
        }
      }
    }
    if (out.size() > kMaxRewrittenSize) {
      return resource_exhausted("the pre-tokenized text would be larger than {} bytes",
                                kMaxRewrittenSize);
    }
    piece = {begin, out.size()};
  }
  result->buffer.swap(out);
  result->text = result->buffer;
  return {};
}

}  // namespace atom
