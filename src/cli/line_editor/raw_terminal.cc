#include "cli/line_editor/raw_terminal.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace atom::cli {
namespace {

constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kDoNotMarkPastes = "\x1b[?2004l";

}  // namespace

void write_terminal(int output, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(output, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    data += written;
    size -= static_cast<size_t>(written);
  }
}

RawTerminal::RawTerminal(int input, int output) : input_(input), output_(output) {
  if (tcgetattr(input_, &before_) != 0) return;
  termios raw = before_;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  is_changed_ = tcsetattr(input_, TCSADRAIN, &raw) == 0;
  if (is_changed_) write_terminal(output_, kMarkPastes.data(), kMarkPastes.size());
}

RawTerminal::~RawTerminal() {
  if (!is_changed_) return;
  write_terminal(output_, kDoNotMarkPastes.data(), kDoNotMarkPastes.size());
  tcsetattr(input_, TCSADRAIN, &before_);
}

}  // namespace atom::cli
