#include "cli/line_reader.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/env.h"
#include "base/log.h"
#include "cli/line_editor/key_decoder.h"
#include "cli/line_editor/line_display.h"
#include "cli/line_editor/line_editor.h"
#include "cli/line_editor/raw_terminal.h"
#include "cli/terminal.h"

namespace atom::cli {
namespace {

// A longer line is cut into several: input without line ends must not fill the memory.
constexpr size_t kMaxLine = size_t{16} << 20;
constexpr int kEscapeDelay = 50;  // milliseconds after which nothing more of a key's bytes comes
constexpr char kEndOfInput = '\x04';  // Ctrl-D
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

bool can_edit() {
  return is_terminal(stdin) && is_terminal(stderr) && !env().terminal.empty() &&
         env().terminal != "dumb";
}

}  // namespace

// Edits on standard error, where prompts and figures are, so that standard output has answers
// alone.
class LineReader::Terminal {
 public:
  Terminal(Interrupts* interrupts, const std::vector<std::string>* history)
      : interrupts_(interrupts), editor_(history) {}

  Outcome read(const std::string& prompt, int prompt_width, std::string* line) {
    begin();
    LineDisplay display(prompt, prompt_width);
    editor_.start();
    const Outcome outcome = read(&display, line);
    raw_->let_signals();
    return outcome;
  }

 private:
  static void write(const std::string& text) {
    write_terminal(STDERR_FILENO, text.data(), text.size());
  }
  void show(LineDisplay* display, size_t cursor) {
    write(display->show(editor_.text(), cursor, {terminal_width(stderr), terminal_height(stderr)}));
  }
  // The terminal stays raw from the first prompt on: what is typed between two prompts would
  // otherwise be cut into lines by the terminal, which makes a NUL of Ctrl-D.
  void begin() {
    if (!raw_) raw_.emplace(STDIN_FILENO, STDERR_FILENO);
    if (raw_->take_keys()) take_typed_ahead();
  }

  Outcome read(LineDisplay* display, std::string* line) {
    for (;;) {
      show(display, editor_.cursor());
      switch (edit()) {
        case LineEditor::Action::kNothing:
          break;
        case LineEditor::Action::kAccept:
          *line = editor_.text();
          leave(display);
          return Outcome::kLine;
        case LineEditor::Action::kEnd:
          leave(display);
          return Outcome::kEnd;
        case LineEditor::Action::kLeave:
          leave(display);
          return Outcome::kInterrupted;
        case LineEditor::Action::kClearScreen:
          write(kClearScreen);
          display->start();
          break;
        case LineEditor::Action::kSuspend:
          leave(display);
          raw_.reset();
          ::kill(0, SIGTSTP);  // goes on here when the shell says so
          begin();
          display->start();
          break;
      }
    }
  }

  // What comes next begins below the text.
  void leave(LineDisplay* display) {
    show(display, editor_.text().size());
    write("\r\n");
  }

  // Gives the editor what is typed next; what comes of it.
  LineEditor::Action edit() {
    for (;;) {
      bool has_pressed = false;
      while (const std::optional<KeyPress> press = decoder_.next()) {
        has_pressed = true;
        const LineEditor::Action action = editor_.press(*press);
        if (action != LineEditor::Action::kNothing) return action;
      }
      if (has_pressed) return LineEditor::Action::kNothing;
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_->fd(), POLLIN, 0}};
      const int ready = ::poll(sources, 2, decoder_.is_waiting() ? kEscapeDelay : -1);
      if (ready < 0 && errno != EINTR) return LineEditor::Action::kEnd;
      if (ready == 0) decoder_.give_up();
      // Sent by another program, or by Ctrl-C when the prompt was not there yet.
      if (interrupts_->take()) return editor_.press({Key::kControl, "c"});
      if (ready > 0 && !read_bytes()) return LineEditor::Action::kEnd;
    }
  }

  // What was typed while the terminal edited lines: it has made \n of the Enter key and NUL of
  // Ctrl-D.
  void take_typed_ahead() {
    pollfd source = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&source, 1, 0) > 0) read_bytes(/*is_typed_ahead=*/true);
  }

  // False when the terminal is gone.
  bool read_bytes(bool is_typed_ahead = false) {
    char chunk[4096];
    const ssize_t size = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (size < 0 && errno == EINTR) return true;
    if (size <= 0) return false;
    if (is_typed_ahead) {
      std::replace(chunk, chunk + size, '\n', '\r');
      std::replace(chunk, chunk + size, '\0', kEndOfInput);
    }
    decoder_.feed(std::string_view(chunk, static_cast<size_t>(size)));
    return true;
  }

  Interrupts* const interrupts_;
  std::optional<RawTerminal> raw_;  // from the first prompt on
  LineEditor editor_;
  KeyDecoder decoder_;
};

LineReader::LineReader(Interrupts* interrupts, const std::string& history)
    : interrupts_(interrupts), history_(history) {
  if (!can_edit()) return;
  if (const Status status = history_.load(); !status.ok()) {
    log::warning("no history of what was typed: {}", status.message());
  }
  terminal_ = std::make_unique<Terminal>(interrupts, &history_.entries());
}

LineReader::~LineReader() = default;

LineReader::Outcome LineReader::read_line(const std::string& prompt,
                                          int prompt_width,
                                          std::string* line) {
  if (terminal_ == nullptr) {
    const bool is_shown = is_terminal(stdin);
    if (is_shown) fmt::print(stderr, "{}", prompt);
    const Outcome plain = read_plain(line);
    if (is_shown && plain != Outcome::kLine) fmt::print(stderr, "\n");
    return plain;
  }
  const Outcome outcome = terminal_->read(prompt, prompt_width, line);
  if (outcome != Outcome::kLine) return outcome;
  if (const Status status = history_.add(*line); !status.ok()) {
    log::warning("not kept for the next start: {}", status.message());
  }
  return outcome;
}

bool LineReader::take_line(std::string* line) {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos && buffer_.size() < kMaxLine && (!at_end_ || buffer_.empty())) {
    return false;
  }
  *line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

LineReader::Outcome LineReader::read_plain(std::string* line) {
  for (;;) {
    if (take_line(line)) return Outcome::kLine;
    if (at_end_) return Outcome::kEnd;
    pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_->fd(), POLLIN, 0}};
    if (poll(sources, 2, -1) < 0 && errno != EINTR) return Outcome::kEnd;
    if (interrupts_->take()) return Outcome::kInterrupted;
    if (sources[0].revents == 0) continue;
    char chunk[4096];
    const ssize_t size = read(STDIN_FILENO, chunk, sizeof chunk);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      at_end_ = true;
    } else {
      buffer_.append(chunk, static_cast<size_t>(size));
    }
  }
}

}  // namespace atom::cli
