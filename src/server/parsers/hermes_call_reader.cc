#include "server/parsers/hermes_call_reader.h"

#include "server/parsers/marker_set.h"

namespace atom::server {
namespace {

enum Kind { kBeginMarker, kEndMarker };

const MarkerSet& markers() {
  static const MarkerSet set({{std::string(HermesCallReader::kBegin), kBeginMarker},
                              {std::string(HermesCallReader::kEnd), kEndMarker}});
  return set;
}

}  // namespace

void HermesCallReader::start(std::string_view marker) {
  begin_section();
  undecided_ = marker;
  state_ = State::kObject;
  begin_object();
}

size_t HermesCallReader::read(std::string_view text, bool final, DeltaWriter& out) {
  size_t used = 0;
  while (used < text.size() && status() == Status::kReading) {
    const State state = state_;
    const std::string_view rest = text.substr(used);
    size_t taken = 0;
    switch (state) {
      case State::kObject:
        taken = read_object(rest, out);
        break;
      case State::kAfterObject:
        taken = read_after_object(rest, final);
        break;
      case State::kVerbatim:
        taken = read_verbatim(rest, final, out);
        break;
    }
    used += taken;
    if (taken == 0 && state == state_) break;
  }
  return used;
}

size_t HermesCallReader::read_after_object(std::string_view text, bool final) {
  const MarkerSet::Match match = markers().find(text, false);
  if (match.position == 0) {
    if (match.kind == kBeginMarker) done();
    if (match.kind == kEndMarker) done();
    if (match.kind == kEndMarker) return match.size;
    return match.kind == MarkerSet::kNone && final ? text.size() : 0;  // half an end marker
  }
  size_t used = 0;
  while (used < match.position && is_json_space(text[used])) ++used;
  if (used == match.position) return used;
  if (text[used] == '{') {
    state_ = State::kObject;
    begin_object();
  } else {
    leave_early();
  }
  return used;
}

size_t HermesCallReader::read_verbatim(std::string_view text, bool final, DeltaWriter& out) {
  const MarkerSet::Match match = markers().find(text, final);
  out.arguments(text.substr(0, match.position));
  if (match.kind == MarkerSet::kNone) return match.position;
  done();
  return match.kind == kEndMarker ? match.position + match.size : match.position;
}

}  // namespace atom::server
