// Colors for text that a person reads, and the text of others made safe to show.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace atom::cli {

// Wraps text in escape sequences, or returns it unchanged when colors are off. A plain value.
class Style {
 public:
  explicit Style(bool enabled) : enabled_(enabled) {}
  // Colors on a terminal, unless NO_COLOR is set.
  static Style for_stream(std::FILE* stream);

  bool enabled() const { return enabled_; }
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string yellow(std::string_view text) const { return wrap("33", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool enabled_;
};

// UTF-8 text with each control character, which could drive the terminal, replaced by '?'. Names
// from a checkpoint and a model's answers go through this before they reach a terminal. Line feed
// and tab stay when `keep_layout`.
std::string printable(std::string_view text, bool keep_layout = false);

}  // namespace atom::cli
