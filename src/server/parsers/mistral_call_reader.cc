#include "server/parsers/mistral_call_reader.h"

#include <algorithm>

#include "server/parsers/marker_set.h"

namespace atom::server {
namespace {

enum Kind { kCallsMarker, kIdMarker, kArgumentsMarker };

const MarkerSet& markers() {
  static const MarkerSet set({{std::string(MistralCallReader::kBegin), kCallsMarker},
                              {std::string(MistralCallReader::kId), kIdMarker},
                              {std::string(MistralCallReader::kArguments), kArgumentsMarker}});
  return set;
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether it has the form that the templates demand.
bool is_call_id(std::string_view id) {
  return id.size() == 9 && std::all_of(id.begin(), id.end(), is_letter_or_digit);
}

}  // namespace

void MistralCallReader::start(std::string_view marker) {
  begin_section();
  undecided_ = marker;
  state_ = State::kStart;
  in_array_ = false;
  begun_ = false;
  num_calls_ = 0;
  name_.clear();
  id_.clear();
  arguments_.clear();
  arguments_reader_ = ArgumentsReader();
}

size_t MistralCallReader::read(std::string_view text, bool final, DeltaWriter& out) {
  size_t used = 0;
  while (used < text.size() && status() == Status::kReading) {
    const State state = state_;
    const size_t taken = step(text.substr(used), final, out);
    used += taken;
    if (taken == 0 && state == state_) break;
  }
  return used;
}

size_t MistralCallReader::step(std::string_view text, bool final, DeltaWriter& out) {
  switch (state_) {
    case State::kStart:
      return read_start(text[0]);
    case State::kArray:
      return read_array(text[0]);
    case State::kObject:
      return read_object(text, out);
    case State::kName:
    case State::kId:
      return read_header(text, final);
    case State::kBeforeArguments:
      return read_before_arguments(text[0]);
    case State::kArguments:
      return read_arguments(text, out);
    case State::kVerbatim:
      return read_verbatim(text, final, out);
  }
  return 0;
}

size_t MistralCallReader::read_start(char c) {
  if (is_json_space(c) || c == '[') {
    if (undecided_.size() >= kMaxNameSize) {
      reject();
      return 0;
    }
    undecided_.push_back(c);
    in_array_ = c == '[';
    if (in_array_) state_ = State::kArray;
    return 1;
  }
  if (c == '{') {
    state_ = State::kObject;
    begin_object();
  } else if (is_name_byte(c)) {
    state_ = State::kName;
  } else {
    reject();
  }
  return 0;
}

size_t MistralCallReader::read_array(char c) {
  if (c == '{') {
    state_ = State::kObject;
    begin_object();
    return 0;
  }
  if (num_calls_ > 0) {
    if (is_json_space(c) || c == ',') return 1;
    done();
    return c == ']' ? 1 : 0;
  }
  if (!is_json_space(c) || undecided_.size() >= kMaxNameSize) {
    reject();
    return 0;
  }
  undecided_.push_back(c);
  return 1;
}

void MistralCallReader::end_object(bool is_whole) {
  if (!is_whole) {
    state_ = State::kVerbatim;
    return;
  }
  ++num_calls_;
  state_ = State::kArray;
  if (!in_array_) done();
}

// name[CALL_ID]id[ARGS], or the name and at once the arguments.
size_t MistralCallReader::read_header(std::string_view text, bool final) {
  const bool is_name = state_ == State::kName;
  std::string& word = is_name ? name_ : id_;
  const MarkerSet::Match match = markers().find(text, final);
  if (match.position == 0) {
    const bool fits = match.kind == kArgumentsMarker || (match.kind == kIdMarker && is_name);
    if (fits && !word.empty()) {
      state_ = match.kind == kIdMarker ? State::kId : State::kBeforeArguments;
      undecided_.append(text.substr(0, match.size));
      return match.size;
    }
    if (match.kind != MarkerSet::kNone) reject();
    return 0;
  }
  for (size_t used = 0; used < match.position; ++used) {
    const char c = text[used];
    if (is_name && c == '{') {
      state_ = State::kBeforeArguments;
      return used;
    }
    if (!is_name_byte(c) || c == '[' || word.size() >= kMaxNameSize) {
      reject();
      return used;
    }
    word.push_back(c);
    undecided_.push_back(c);
  }
  return match.position;
}

size_t MistralCallReader::read_before_arguments(char c) {
  if (c == '{' || c == '"') {
    state_ = State::kArguments;
    return 0;
  }
  if (!is_json_space(c) || undecided_.size() >= 4 * kMaxNameSize) {
    reject();
    return 0;
  }
  undecided_.push_back(c);
  return 1;
}

size_t MistralCallReader::read_arguments(std::string_view text, DeltaWriter& out) {
  if (!begun_ && undecided_.size() >= kMaxUndecidedSize) {
    reject();
    return 0;
  }
  if (!begun_) text = text.substr(0, kMaxUndecidedSize - undecided_.size());
  const size_t used = arguments_reader_.read(text, &arguments_);
  if (!begun_) undecided_.append(text.substr(0, used));
  if (arguments_reader_.begun()) {
    if (!begun_) out.begin_call(name_, is_call_id(id_) ? id_ : std::string_view());
    begun_ = true;
    undecided_.clear();
    out.arguments(arguments_);
    arguments_.clear();
  }
  switch (arguments_reader_.status()) {
    case ArgumentsReader::Status::kOpen:
      break;
    case ArgumentsReader::Status::kDone:
      done();
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

size_t MistralCallReader::read_verbatim(std::string_view text, bool final, DeltaWriter& out) {
  const MarkerSet::Match match = markers().find(text, final);
  if (match.position == 0 && match.kind == kCallsMarker) {
    done();
    return 0;
  }
  const size_t used = match.position + (match.kind == kCallsMarker ? 0 : match.size);
  out.arguments(text.substr(0, used));
  return used;
}

}  // namespace atom::server
