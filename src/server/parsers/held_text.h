// What a parser has been given and cannot decide yet: the beginning of a marker, say.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace atom::server {

class HeldText {
 public:
  // `run` is given what was held and `text` behind it, and returns how many bytes it took; the rest
  // is held.
  template <typename Run>
  void feed(std::string_view text, const Run& run) {
    if (held_.empty()) {
      const size_t used = run(text);
      held_.assign(text.substr(used));
    } else {
      held_.append(text);
      held_.erase(0, run(held_));
    }
  }

  // What is held, which is not held any more.
  std::string take() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

}  // namespace atom::server
