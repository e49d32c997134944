#include "server/parsers/xml_call_reader.h"

#include <initializer_list>
#include <utility>

#include "server/parsers/call_object_reader.h"
#include "server/parsers/json_scanner.h"

namespace atom::server {
namespace {

enum Kind {
  kSectionBegin,
  kSectionEnd,
  kCallBegin,
  kCallEnd,
  kKeyBegin,
  kKeyEnd,
  kValueBegin,
  kValueEnd,
};

MarkerSet markers_of(const XmlTags& tags, std::initializer_list<Kind> kinds) {
  std::vector<MarkerSet::Marker> markers;
  const auto add = [&](const std::string& text, Kind kind) {
    if (!text.empty()) markers.push_back({text, kind});
  };
  for (const Kind kind : kinds) {
    switch (kind) {
      case kSectionBegin:
        for (const std::string& text : tags.section_begin) add(text, kind);
        break;
      case kSectionEnd:
        for (const std::string& text : tags.section_end) add(text, kind);
        break;
      case kCallBegin:
        add(tags.call_begin, kind);
        break;
      case kCallEnd:
        add(tags.call_end, kind);
        break;
      case kKeyBegin:
        add(tags.key_begin, kind);
        break;
      case kKeyEnd:
        add(tags.key_end, kind);
        break;
      case kValueBegin:
        add(tags.value_begin, kind);
        break;
      case kValueEnd:
        add(tags.value_end, kind);
        break;
    }
  }
  return MarkerSet(std::move(markers));
}

MarkerSet header_markers(const XmlTags& tags) {
  if (!tags.call_begin.empty()) return markers_of(tags, {kKeyEnd});
  return markers_of(tags, {kSectionBegin, kSectionEnd, kKeyBegin});
}

// `string="true"` behind a parameter's name.
JsonTypes types_in_attributes(std::string_view attributes, JsonTypes otherwise) {
  if (attributes.find("string=\"true\"") != std::string_view::npos) return kStringType;
  if (attributes.find("string=\"false\"") != std::string_view::npos) {
    return kAnyType & ~kStringType;
  }
  return otherwise;
}

}  // namespace

XmlSyntax::XmlSyntax(XmlTags xml_tags)
    : tags(std::move(xml_tags)),
      between(markers_of(
          tags, {kSectionBegin, kSectionEnd, kCallBegin, kCallEnd, kKeyBegin, kValueBegin})),
      header(header_markers(tags)),
      key(markers_of(tags, {kKeyEnd, kValueBegin})),
      value(markers_of(tags, {kValueEnd, kKeyBegin, kCallBegin, kCallEnd, kSectionEnd})) {}

const XmlSyntax& qwen_coder_syntax() {
  static const XmlSyntax syntax({.section_begin = {"<tool_call>"},
                                 .section_end = {"</tool_call>"},
                                 .call_begin = "<function=",
                                 .call_end = "</function>",
                                 .key_begin = "<parameter=",
                                 .key_end = ">",
                                 .value_begin = "",
                                 .value_end = "</parameter>",
                                 .has_attributes = false,
                                 .trim_newlines = true});
  return syntax;
}

const XmlSyntax& glm_syntax() {
  static const XmlSyntax syntax({.section_begin = {"<tool_call>"},
                                 .section_end = {"</tool_call>"},
                                 .call_begin = "",
                                 .call_end = "",
                                 .key_begin = "<arg_key>",
                                 .key_end = "</arg_key>",
                                 .value_begin = "<arg_value>",
                                 .value_end = "</arg_value>"});
  return syntax;
}

const XmlSyntax& dsml_syntax() {
  static const XmlSyntax syntax(
      {.section_begin = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
       .section_end = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
       .call_begin = "<｜DSML｜invoke name=\"",
       .call_end = "</｜DSML｜invoke>",
       .key_begin = "<｜DSML｜parameter name=\"",
       .key_end = ">",
       .value_begin = "",
       .value_end = "</｜DSML｜parameter>",
       .has_attributes = true,
       .trim_newlines = false});
  return syntax;
}

XmlCallReader::XmlCallReader(const XmlSyntax& syntax, std::shared_ptr<const ToolTypes> types)
    : syntax_(syntax), types_(std::move(types)), arguments_(syntax.tags.trim_newlines) {}

void XmlCallReader::start(std::string_view marker) {
  begin_section();
  num_calls_ = 0;
  if (syntax_.tags.call_begin.empty() || marker == syntax_.tags.call_begin) {
    begin_header(marker);
  } else {
    undecided_ = marker;
    state_ = State::kSection;
  }
}

size_t XmlCallReader::read(std::string_view text, bool final, DeltaWriter& out) {
  return read_steps(
      text, final, state_, [&](std::string_view rest) { return step(rest, final, out); });
}

size_t XmlCallReader::step(std::string_view text, bool final, DeltaWriter& out) {
  switch (state_) {
    case State::kSection:
      return read_section(text);
    case State::kHeader:
      return read_header(text, out);
    case State::kBody:
      return read_body(text, out);
    case State::kKey:
      return read_key(text, out);
    case State::kBeforeValue:
      return read_before_value(text, out);
    case State::kValue:
      return read_value(text, final, out);
  }
  return 0;
}

void XmlCallReader::leave() {
  if (undecided_.empty()) {
    leave_early();
  } else {
    reject();
  }
}

size_t XmlCallReader::read_section(std::string_view text) {
  const MarkerSet::Match match = syntax_.between.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (!is_json_space(text[used]) || undecided_.size() >= kMaxNameSize) {
      leave();
      return used;
    }
    if (num_calls_ == 0) undecided_.push_back(text[used]);
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  if (match.kind == kCallBegin) {
    begin_header(syntax_.tags.call_begin);
    return match.size;
  }
  if (num_calls_ > 0 && match.kind == kSectionEnd) {
    done();
    return match.size;
  }
  leave();
  return 0;
}

void XmlCallReader::begin_header(std::string_view marker) {
  undecided_ += marker;
  state_ = State::kHeader;
  header_.clear();
  name_ended_ = false;
}

// A name with white space around it, or in quotes of which the first is part of the tag.
bool XmlCallReader::take_header_byte(char c) {
  if (header_.size() >= kMaxNameSize) return false;
  if (syntax_.tags.has_attributes) {
    if (name_ended_) {
      if (c == '<' || c == '\n') return false;
    } else if (c == '"') {
      name_ended_ = true;
    } else if (!is_name_byte(c)) {
      return false;
    }
  } else if (is_json_space(c)) {
    name_ended_ = !trim_json_space(header_).empty();
  } else if (name_ended_ || !is_name_byte(c)) {
    return false;
  }
  header_.push_back(c);
  undecided_.push_back(c);
  return true;
}

size_t XmlCallReader::read_header(std::string_view text, DeltaWriter& out) {
  const MarkerSet::Match match = syntax_.header.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (!take_header_byte(text[used])) {
      reject();
      return used;
    }
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  return end_header(match, out);
}

size_t XmlCallReader::end_header(const MarkerSet::Match& match, DeltaWriter& out) {
  const bool complete = name_ended_ || !syntax_.tags.has_attributes;
  name_ = trim_json_space(std::string_view(header_).substr(0, header_.find('"')));
  if (name_.empty() || !complete || match.kind == kSectionBegin) {
    reject();
    return 0;
  }
  undecided_.clear();
  ++num_calls_;
  out.begin_call(name_);
  arguments_.begin_call();
  state_ = State::kBody;
  if (match.kind == kKeyBegin) begin_key();
  if (match.kind == kSectionEnd) {
    arguments_.end_call(out);
    done();
  }
  return match.size;
}

size_t XmlCallReader::read_body(std::string_view text, DeltaWriter& out) {
  const MarkerSet::Match match = syntax_.between.find(text, false);
  if (match.position > 0) {
    out.content(text.substr(0, match.position));  // which drops white space behind a call's begin
    return match.position;
  }
  switch (match.kind) {
    case MarkerSet::kNone:
      return 0;
    case kKeyBegin:
      begin_key();
      return match.size;
    case kValueBegin:
      out.content(syntax_.tags.value_begin);
      return match.size;
    case kCallEnd:
      arguments_.end_call(out);
      state_ = State::kSection;
      return match.size;
    case kCallBegin:
      arguments_.end_call(out);
      begin_header(syntax_.tags.call_begin);
      return match.size;
    default:
      arguments_.end_call(out);
      done();
      return match.kind == kSectionEnd ? match.size : 0;
  }
}

void XmlCallReader::begin_key() {
  state_ = State::kKey;
  header_.clear();
}

void XmlCallReader::give_key_back(std::string_view end, DeltaWriter& out) {
  out.content(syntax_.tags.key_begin);
  out.content(header_);
  out.content(end);
  state_ = State::kBody;
}

size_t XmlCallReader::read_key(std::string_view text, DeltaWriter& out) {
  const MarkerSet::Match match = syntax_.key.find(text, false);
  const bool one_line = syntax_.tags.value_begin.empty();
  for (size_t used = 0; used < match.position; ++used) {
    if (header_.size() >= kMaxNameSize || (one_line && text[used] == '\n')) {
      give_key_back({}, out);
      return used;
    }
    header_.push_back(text[used]);
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  if (match.kind == kKeyEnd && !one_line) {
    state_ = State::kBeforeValue;
  } else {
    begin_value(out);
  }
  return match.size;
}

size_t XmlCallReader::read_before_value(std::string_view text, DeltaWriter& out) {
  const MarkerSet::Match match = syntax_.between.find(text, false);
  for (size_t used = 0; used < match.position; ++used) {
    if (is_json_space(text[used])) continue;
    give_key_back(syntax_.tags.key_end, out);
    return used;
  }
  if (match.position > 0 || match.kind == MarkerSet::kNone) return match.position;
  if (match.kind == kValueBegin) {
    begin_value(out);
    return match.size;
  }
  give_key_back(syntax_.tags.key_end, out);
  return 0;
}

void XmlCallReader::begin_value(DeltaWriter& out) {
  state_ = State::kValue;
  last_byte_ = '\n';
  const std::string_view header = header_;
  const size_t quote = syntax_.tags.has_attributes ? header.find('"') : header.size();
  const std::string key(trim_json_space(header.substr(0, quote)));
  JsonTypes types = types_->types_of(name_, key);
  if (quote < header.size()) types = types_in_attributes(header.substr(quote + 1), types);
  arguments_.begin_value(key, types, out);
}

size_t XmlCallReader::read_value(std::string_view text, bool final, DeltaWriter& out) {
  const MarkerSet::Match match = syntax_.value.find(text, final);
  size_t used = match.position;
  if (used == 0 && match.kind == MarkerSet::kNone) return 0;
  if (used == 0) {
    // Tags other than the value's end may be text of the value, unless they begin a line.
    const bool ends = match.kind == kValueEnd || last_byte_ == '\n' || syntax_.tags.has_attributes;
    if (ends) {
      arguments_.end_value(out);
      state_ = State::kBody;
      return match.kind == kValueEnd ? match.size : 0;
    }
    used = match.size;
  }
  arguments_.value(text.substr(0, used), out);
  last_byte_ = text[used - 1];
  return used;
}

void XmlCallReader::finish(DeltaWriter& out) {
  if (status() != Status::kReading) return;
  if (!undecided_.empty()) {
    reject();
    return;
  }
  if (state_ == State::kValue) arguments_.cut_value(out);
  done();
}

}  // namespace atom::server
