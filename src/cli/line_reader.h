// Lines of standard input, read so that Ctrl-C is noticed. At a terminal they are edited as they
// are typed, may have several lines each, and are remembered from one start to the next.
#pragma once

#include <memory>
#include <string>

#include "cli/interrupts.h"
#include "cli/line_editor/line_history.h"

namespace atom::cli {

class LineReader {
 public:
  // `history`: a file of what was typed, or empty. Only where standard input and standard error are
  // a terminal that can be edited on.
  LineReader(Interrupts* interrupts, const std::string& history);
  ~LineReader();

  enum class Outcome { kLine, kEnd, kInterrupted };
  // The next line, without its end; the last one may lack it. A terminal shows `prompt`, which is
  // `prompt_width` columns wide.
  Outcome read_line(const std::string& prompt, int prompt_width, std::string* line);

 private:
  class Terminal;

  Outcome read_plain(std::string* line);
  bool take_line(std::string* line);

  Interrupts* const interrupts_;
  LineHistory history_;
  std::unique_ptr<Terminal> terminal_;  // null: lines are taken as they come
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace atom::cli
