#include "server/parsers/marker_set.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace atom::server {

MarkerSet::MarkerSet(std::vector<Marker> markers) : markers_(std::move(markers)) {
  size_t num_first_bytes = 0;
  for (const Marker& marker : markers_) {
    CHECK(!marker.text.empty());
    CHECK(marker.kind >= 0);
    bool& seen = is_first_byte_[static_cast<uint8_t>(marker.text[0])];
    if (!seen) ++num_first_bytes;
    seen = true;
  }
  if (num_first_bytes == 1) only_first_byte_ = markers_[0].text[0];
}

size_t MarkerSet::next_candidate(std::string_view text, size_t from) const {
  if (markers_.empty()) return text.size();
  if (only_first_byte_ != 0) {
    const void* found = std::memchr(text.data() + from, only_first_byte_, text.size() - from);
    return found == nullptr ? text.size() : static_cast<const char*>(found) - text.data();
  }
  while (from < text.size() && !is_first_byte_[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

MarkerSet::Match MarkerSet::find(std::string_view text, bool final) const {
  for (size_t from = 0; from < text.size();) {
    const size_t position = next_candidate(text, from);
    if (position == text.size()) break;
    const std::string_view rest = text.substr(position);
    Match match{position, kNone, 0};
    for (const Marker& marker : markers_) {
      if (rest.size() < marker.text.size()) {
        if (!final && marker.text.starts_with(rest)) return {position, kNone, 0};
      } else if (marker.text.size() > match.size && rest.starts_with(marker.text)) {
        match.kind = marker.kind;
        match.size = marker.text.size();
      }
    }
    if (match.kind != kNone) return match;
    from = position + 1;
  }
  return {text.size(), kNone, 0};
}

}  // namespace atom::server
