#include "cli/style.h"

#include <cstdint>

#include "base/env.h"
#include "cli/terminal.h"

namespace atom::cli {

Style Style::for_stream(std::FILE* stream) {
  return Style(is_terminal(stream) && !env().no_color);
}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  if (!enabled_ || text.empty()) return std::string(text);
  std::string wrapped = "\x1b[";
  wrapped.append(code).append("m").append(text).append("\x1b[0m");
  return wrapped;
}

std::string printable(std::string_view text, bool keep_layout) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t next = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : 0;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      safe += '?';  // U+0080 to U+009F, which hold one-character forms of escape sequences
      ++i;
    } else if (byte < 0x20 || byte == 0x7f) {
      safe += keep_layout && (byte == '\n' || byte == '\t') ? text[i] : '?';
    } else {
      safe += text[i];
    }
  }
  return safe;
}

}  // namespace atom::cli
