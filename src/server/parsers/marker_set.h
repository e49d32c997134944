// Finds the markers of a family ("<tool_call>", "<｜tool▁sep｜>") in text that arrives cut
// anywhere. Const after construction and thread-safe; linear in the text.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atom::server {

class MarkerSet {
 public:
  struct Marker {
    std::string text;  // not empty
    int kind;          // what find() reports, at least 0
  };
  static constexpr int kNone = -1;

  explicit MarkerSet(std::vector<Marker> markers);

  struct Match {
    size_t position;  // bytes of plain text in front of the marker
    int kind;         // kNone: no marker
    size_t size;      // bytes of the marker
  };
  // The leftmost marker, of those there the longest. Without one, `position` bytes are plain text
  // and what is behind them may still become a marker; it is shorter than the longest marker, and
  // nothing when the text is `final`.
  Match find(std::string_view text, bool final) const;

 private:
  size_t next_candidate(std::string_view text, size_t from) const;

  std::vector<Marker> markers_;
  std::array<bool, 256> is_first_byte_{};
  char only_first_byte_ = 0;  // 0: several
};

}  // namespace atom::server
