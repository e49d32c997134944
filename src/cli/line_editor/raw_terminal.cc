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

RawTerminal::RawTerminal(int input, int output)
    : input_(input), output_(output), is_terminal_(tcgetattr(input, &before_) == 0) {}

RawTerminal::~RawTerminal() {
  if (!is_terminal_) return;
  write_terminal(output_, kDoNotMarkPastes.data(), kDoNotMarkPastes.size());
  tcsetattr(input_, TCSADRAIN, &before_);
}

bool RawTerminal::set(tcflag_t signals) {
  termios now{};
  if (!is_terminal_ || tcgetattr(input_, &now) != 0) return false;
  termios raw = before_;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  raw.c_lflag |= signals;
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(input_, TCSADRAIN, &raw);
  return (now.c_lflag & ICANON) != 0;
}

bool RawTerminal::take_keys() {
  const bool was_cooked = set(0);
  if (is_terminal_) write_terminal(output_, kMarkPastes.data(), kMarkPastes.size());
  return was_cooked;
}

void RawTerminal::let_signals() {
  if (is_terminal_) write_terminal(output_, kDoNotMarkPastes.data(), kDoNotMarkPastes.size());
  set(before_.c_lflag & ISIG);
}

}  // namespace atom::cli
