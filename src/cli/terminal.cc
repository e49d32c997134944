#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace atom::cli {

bool is_terminal(std::FILE* stream) {
  return ::isatty(::fileno(stream)) == 1;
}

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int terminal_height(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

}  // namespace atom::cli
