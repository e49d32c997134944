#include "server/parsers/llama_call_reader.h"

namespace atom::server {

void LlamaCallReader::start(std::string_view marker) {
  begin_section();
  undecided_ = marker;
  state_ = State::kObject;
  begin_object(/*needs_arguments=*/true);
}

size_t LlamaCallReader::read(std::string_view text, bool, DeltaWriter& out) {
  size_t used = 0;
  while (used < text.size() && status() == Status::kReading) {
    const std::string_view rest = text.substr(used);
    switch (state_) {
      case State::kObject:
        used += read_object(rest, out);
        break;
      case State::kAfterObject:
        used += read_after_object(rest[0]);
        break;
      case State::kVerbatim:
        out.arguments(rest);
        used = text.size();
        break;
    }
  }
  return used;
}

// Another object, after at most one separator; undecided_ is that and the space behind it.
size_t LlamaCallReader::read_after_object(char c) {
  if (is_json_space(c) && undecided_.size() < kMaxNameSize) {
    if (!undecided_.empty()) undecided_.push_back(c);
    return 1;
  }
  if (c == '{') {
    state_ = State::kObject;
    begin_object(/*needs_arguments=*/true);
    return 0;
  }
  if ((c == ';' || c == ',') && undecided_.empty()) {
    undecided_ = c;
    return 1;
  }
  if (undecided_.empty()) {
    done();
  } else {
    reject();
  }
  return 0;
}

}  // namespace atom::server
