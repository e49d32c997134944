#include "server/parsers/call_object_reader.h"

namespace atom::server {

void CallObjectReader::fail() {
  if (!begun_) {
    status_ = Status::kRejected;
  } else {
    status_ = have_arguments_ ? Status::kDone : Status::kBroken;
  }
}

void CallObjectReader::begin_call(DeltaWriter& out) {
  begun_ = true;
  out.begin_call(name_);
  out.arguments(arguments_);
  arguments_.clear();
}

size_t CallObjectReader::read(std::string_view text, DeltaWriter& out) {
  size_t used = 0;
  while (used < text.size() && status_ == Status::kOpen) {
    if (!begun_ && undecided_.size() >= kMaxUndecidedSize) {
      fail();
      break;
    }
    std::string_view rest = text.substr(used);
    if (!begun_) rest = rest.substr(0, kMaxUndecidedSize - undecided_.size());
    const size_t taken = step(rest, out);
    if (!begun_) undecided_.append(rest.substr(0, taken));
    used += taken;
  }
  if (begun_) undecided_.clear();
  return used;
}

size_t CallObjectReader::step(std::string_view text, DeltaWriter& out) {
  switch (state_) {
    case State::kKey: {
      const size_t used = string_.decode(text, &key_);
      if (string_.status() == JsonStatus::kBad) fail();
      if (string_.status() == JsonStatus::kDone) state_ = State::kColon;
      return used;
    }
    case State::kName:
      return read_name(text, out);
    case State::kArguments:
      return read_arguments(text, out);
    case State::kOther:
      return read_other(text);
    default:
      break;
  }
  if (is_json_space(text[0])) return 1;
  if (state_ != State::kValue) return take_structure(text[0], out) ? 1 : 0;
  return begin_value(text[0]);
}

bool CallObjectReader::take_structure(char c, DeltaWriter& out) {
  if (state_ == State::kOpenBrace && c == '{') {
    state_ = State::kFirstKey;
  } else if ((state_ == State::kFirstKey || state_ == State::kNextKey) && c == '"') {
    state_ = State::kKey;
    key_.clear();
    string_ = JsonStringDecoder();
  } else if (state_ == State::kColon && c == ':') {
    state_ = State::kValue;
  } else if (state_ == State::kAfterValue && c == ',') {
    state_ = State::kNextKey;
  } else if (state_ == State::kAfterValue && c == '}') {
    end_object(out);
    return status_ == Status::kDone;
  } else {
    fail();
    return false;
  }
  return true;
}

size_t CallObjectReader::begin_value(char c) {
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  is_null_ = is_arguments && !have_arguments_ && c == 'n';
  if (key_ == "name" && !have_name_) {
    state_ = State::kName;
    string_ = JsonStringDecoder();
    if (c == '"') return 1;
    fail();
  } else if (is_arguments && !have_arguments_ && !is_null_) {
    state_ = State::kArguments;
  } else {
    state_ = State::kOther;
    other_ = JsonScanner();
  }
  return 0;
}

size_t CallObjectReader::read_name(std::string_view text, DeltaWriter& out) {
  size_t used = 0;
  // Byte by byte, so that the limit is met at the same byte however the text is cut.
  while (used < text.size() && string_.status() == JsonStatus::kOpen &&
         name_.size() <= kMaxNameSize) {
    const size_t taken = string_.decode(text.substr(used, 1), &name_);
    if (taken == 0) break;
    used += taken;
  }
  if (name_.size() > kMaxNameSize || string_.status() == JsonStatus::kBad) {
    fail();
  } else if (string_.status() == JsonStatus::kDone) {
    if (name_.empty()) {
      fail();
      return used;
    }
    have_name_ = true;
    state_ = State::kAfterValue;
    if (have_arguments_) begin_call(out);
  }
  return used;
}

size_t CallObjectReader::read_arguments(std::string_view text, DeltaWriter& out) {
  const size_t used = arguments_reader_.read(text, &arguments_);
  if (have_name_ && arguments_reader_.begun()) {
    if (!begun_) {
      begin_call(out);
    } else {
      out.arguments(arguments_);
      arguments_.clear();
    }
  }
  switch (arguments_reader_.status()) {
    case ArgumentsReader::Status::kOpen:
      break;
    case ArgumentsReader::Status::kDone:
      have_arguments_ = true;
      state_ = State::kAfterValue;
      break;
    default:
      fail();
  }
  return used;
}

size_t CallObjectReader::read_other(std::string_view text) {
  const size_t used = other_.scan(text);
  if (other_.status() == JsonStatus::kBad) fail();
  if (other_.status() == JsonStatus::kDone) {
    state_ = State::kAfterValue;
    if (is_null_) {
      have_arguments_ = true;
      arguments_ = "{}";
    }
  }
  return used;
}

void CallObjectReader::end_object(DeltaWriter& out) {
  if (!have_name_ || (needs_arguments_ && !have_arguments_)) {
    fail();
    return;
  }
  if (!begun_) {
    if (!have_arguments_) arguments_ = "{}";
    have_arguments_ = true;
    begin_call(out);
  }
  status_ = Status::kDone;
}

}  // namespace atom::server
