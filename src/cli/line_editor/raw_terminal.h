// A terminal that gives its keys to the program as they are pressed, Ctrl-C and Ctrl-Z included,
// and marks what is pasted; as it was before when the object goes.
#pragma once

#include <termios.h>

namespace atom::cli {

class RawTerminal {
 public:
  // `input` is where keys come from and `output` where the terminal is written to. Nothing changes
  // when `input` is no terminal.
  RawTerminal(int input, int output);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  const int input_;
  const int output_;
  termios before_{};
  bool is_changed_ = false;
};

// All of it, unless the terminal is gone.
void write_terminal(int output, const char* data, size_t size);

}  // namespace atom::cli
