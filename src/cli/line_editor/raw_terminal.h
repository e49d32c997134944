// A terminal that gives its keys to the program as they are pressed and does not show them; as it
// was before when the object goes.
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

  // Every key is input, Ctrl-C and Ctrl-Z included, and what is pasted is marked. True when the
  // terminal has edited lines by itself until now: what was typed then has its line ends.
  bool take_keys();
  // Ctrl-C and Ctrl-Z are signals again; other keys wait, unchanged, to be read.
  void let_signals();

 private:
  bool set(tcflag_t signals);

  const int input_;
  const int output_;
  termios before_{};
  bool is_terminal_ = false;
};

// All of it, unless the terminal is gone.
void write_terminal(int output, const char* data, size_t size);

}  // namespace atom::cli
