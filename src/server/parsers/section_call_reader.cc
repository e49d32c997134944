#include "server/parsers/section_call_reader.h"

#include <algorithm>

#include "server/parsers/call_object_reader.h"

namespace atom::server {
namespace {

enum Kind { kSectionBegin, kSectionEnd, kCallBegin, kSeparator, kCallEnd };

MarkerSet make_markers(const SectionSyntax& syntax) {
  return MarkerSet({{syntax.section_begin, kSectionBegin},
                    {syntax.section_end, kSectionEnd},
                    {syntax.call_begin, kCallBegin},
                    {syntax.separator, kSeparator},
                    {syntax.call_end, kCallEnd}});
}

const MarkerSet& markers_of(const SectionSyntax& syntax) {
  static const MarkerSet deepseek = make_markers(deepseek_section_syntax());
  static const MarkerSet kimi = make_markers(kimi_section_syntax());
  return &syntax == &kimi_section_syntax() ? kimi : deepseek;
}

// functions.get_weather:0
std::string_view name_in_id(std::string_view id) {
  constexpr std::string_view kPrefix = "functions.";
  if (id.starts_with(kPrefix)) id.remove_prefix(kPrefix.size());
  const size_t colon = id.rfind(':');
  const bool numbered = colon != std::string_view::npos &&
                        id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return numbered ? id.substr(0, colon) : id;
}

}  // namespace

const SectionSyntax& deepseek_section_syntax() {
  static const SectionSyntax syntax = {"<｜tool▁calls▁begin｜>",
                                       "<｜tool▁calls▁end｜>",
                                       "<｜tool▁call▁begin｜>",
                                       "<｜tool▁sep｜>",
                                       "<｜tool▁call▁end｜>"};
  return syntax;
}

const SectionSyntax& kimi_section_syntax() {
  static const SectionSyntax syntax = {"<|tool_calls_section_begin|>",
                                       "<|tool_calls_section_end|>",
                                       "<|tool_call_begin|>",
                                       "<|tool_call_argument_begin|>",
                                       "<|tool_call_end|>",
                                       /*name_is_id=*/true};
  return syntax;
}

SectionCallReader::SectionCallReader(const SectionSyntax& syntax)
    : syntax_(syntax), markers_(markers_of(syntax)) {}

void SectionCallReader::start(std::string_view marker) {
  begin_section();
  num_calls_ = 0;
  if (marker == syntax_.call_begin) {
    begin_header(marker);
  } else {
    undecided_ = marker;
    state_ = State::kBetween;
  }
}

void SectionCallReader::begin_header(std::string_view marker) {
  undecided_ += marker;
  state_ = State::kHeader;
  begun_ = false;
  name_.clear();
  arguments_.clear();
  arguments_reader_ = ArgumentsReader();
}

void SectionCallReader::begin_call(DeltaWriter& out) {
  if (syntax_.name_is_id) {
    out.begin_call(name_in_id(name_), name_);
  } else {
    out.begin_call(name_);
  }
  begun_ = true;
  ++num_calls_;
  undecided_.clear();
}

void SectionCallReader::leave() {
  if (undecided_.empty()) {
    leave_early();
  } else {
    reject();
  }
}

size_t SectionCallReader::read(std::string_view text, bool final, DeltaWriter& out) {
  return read_steps(
      text, final, state_, [&](std::string_view rest) { return step(rest, final, out); });
}

size_t SectionCallReader::step(std::string_view text, bool final, DeltaWriter& out) {
  switch (state_) {
    case State::kBetween:
      return read_between(text);
    case State::kHeader:
      return read_header(text);
    case State::kBody:
    case State::kNameLine:
    case State::kFence:
      return read_body(text, out);
    case State::kArguments:
      return read_arguments(text, out);
    case State::kAfterArguments:
      return read_after_arguments(text);
    case State::kVerbatim:
      return read_verbatim(text, final, out);
  }
  return 0;
}

size_t SectionCallReader::read_between(std::string_view text) {
  const MarkerSet::Match match = markers_.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (!is_json_space(text[used]) || undecided_.size() >= kMaxNameSize) {
      leave();
      return used;
    }
    if (num_calls_ == 0) undecided_.push_back(text[used]);
  }
  if (match.position > 0) return match.position;
  switch (match.kind) {
    case MarkerSet::kNone:
      return 0;
    case kCallBegin:
      begin_header(syntax_.call_begin);
      return match.size;
    case kSectionEnd:
      if (num_calls_ > 0) {
        done();
        return match.size;
      }
      [[fallthrough]];
    default:
      leave();
      return 0;
  }
}

size_t SectionCallReader::read_header(std::string_view text) {
  const MarkerSet::Match match = markers_.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    const char c = text[used];
    if ((!is_name_byte(c) && !is_json_space(c)) || name_.size() >= kMaxNameSize) {
      reject();
      return used;
    }
    name_.push_back(c);
    undecided_.push_back(c);
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  name_ = std::string(trim_json_space(name_));
  const std::string_view name = syntax_.name_is_id ? name_in_id(name_) : name_;
  if (match.kind != kSeparator || name.empty() ||
      std::any_of(name_.begin(), name_.end(), is_json_space)) {
    reject();
    return 0;
  }
  state_ = State::kBody;
  undecided_ += syntax_.separator;
  return match.size;
}

// From the separator to the arguments.
size_t SectionCallReader::read_body(std::string_view text, DeltaWriter& out) {
  const MarkerSet::Match match = markers_.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (read_body_byte(text[used]) == 0) return used;
    undecided_.push_back(text[used]);
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  if (match.kind != kCallEnd || name_.empty()) {
    reject();
    return 0;
  }
  begin_call(out);
  out.arguments("{}");
  state_ = State::kBetween;
  return match.size;
}

size_t SectionCallReader::read_body_byte(char c) {
  if (undecided_.size() >= 4 * kMaxNameSize) {
    reject();
    return 0;
  }
  const bool is_space = is_json_space(c);
  if (state_ != State::kNameLine && (c == '{' || c == '"')) {
    state_ = State::kArguments;
    return 0;
  }
  if (state_ == State::kBody) {
    if (is_space) return 1;
    state_ = State::kNameLine;  // what stood in front of the separator was the type
    name_.clear();
    if (syntax_.name_is_id) reject();
  }
  if (state_ == State::kNameLine) {
    if (is_name_byte(c) && c != '`') {
      name_.push_back(c);
      return 1;
    }
    state_ = State::kFence;
    if (name_.empty()) reject();
    if (c == '{' || c == '"') state_ = State::kArguments;
    if (c == '{' || c == '"') return 0;
  }
  const bool is_fence = is_space || std::string_view("`json").find(c) != std::string_view::npos;
  if (!is_fence) reject();
  return status() == Status::kReading ? 1 : 0;
}

size_t SectionCallReader::read_arguments(std::string_view text, DeltaWriter& out) {
  if (!begun_ && undecided_.size() >= kMaxUndecidedSize) {
    reject();
    return 0;
  }
  if (!begun_) text = text.substr(0, kMaxUndecidedSize - undecided_.size());
  const size_t used = arguments_reader_.read(text, &arguments_);
  if (!begun_) undecided_.append(text.substr(0, used));
  if (arguments_reader_.begun()) {
    if (!begun_) begin_call(out);
    out.arguments(arguments_);
    arguments_.clear();
  }
  switch (arguments_reader_.status()) {
    case ArgumentsReader::Status::kOpen:
      break;
    case ArgumentsReader::Status::kDone:
      state_ = State::kAfterArguments;
      break;
    case ArgumentsReader::Status::kRejected:
      reject();
      break;
    case ArgumentsReader::Status::kBroken:
      state_ = State::kVerbatim;
      break;
  }
  return used;
}

size_t SectionCallReader::read_after_arguments(std::string_view text) {
  const MarkerSet::Match match = markers_.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (!is_json_space(text[used]) && text[used] != '`') {
      leave();
      return used;
    }
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  state_ = State::kBetween;
  return match.kind == kCallEnd ? match.size : 0;
}

size_t SectionCallReader::read_verbatim(std::string_view text, bool final, DeltaWriter& out) {
  const MarkerSet::Match match = markers_.find(text, final);
  size_t used = match.position;
  if (match.kind == kSeparator) used += match.size;
  out.arguments(text.substr(0, used));
  if (match.kind == MarkerSet::kNone || match.kind == kSeparator) return used;
  state_ = State::kBetween;
  return match.kind == kCallEnd ? used + match.size : used;
}

void SectionCallReader::finish(DeltaWriter&) {
  if (status() != Status::kReading) return;
  if (undecided_.empty()) {
    done();
  } else {
    reject();
  }
}

}  // namespace atom::server
