// Lines of standard input, read so that Ctrl-C is noticed.
#pragma once

#include <string>

#include "cli/interrupts.h"

namespace atom::cli {

class LineReader {
 public:
  explicit LineReader(Interrupts* interrupts) : interrupts_(interrupts) {}

  enum class Outcome { kLine, kEnd, kInterrupted };
  // The next line, without its end; the last one may lack it.
  Outcome read_line(std::string* line);

 private:
  bool take_line(std::string* line);

  Interrupts* const interrupts_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace atom::cli
