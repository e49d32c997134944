// What to send to a terminal so that it shows a prompt and a text that is being edited, over as
// many rows as it takes; of a text that is higher than the terminal, the rows around the cursor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atom::cli {

class LineDisplay {
 public:
  struct Size {
    int columns;
    int rows;
  };

  // `prompt` may have escape sequences; `prompt_width` is the columns that it takes.
  LineDisplay(std::string prompt, int prompt_width)
      : prompt_(std::move(prompt)), prompt_width_(prompt_width) {}

  // Where the display begins: at the start of an empty row.
  void start() { cursor_row_ = 0; }
  // Shows `text` with the cursor before its byte `cursor` in place of what was shown.
  std::string show(std::string_view text, size_t cursor, Size size);

 private:
  const std::string prompt_;
  const int prompt_width_;
  int cursor_row_ = 0;  // of the rows shown
};

}  // namespace atom::cli
