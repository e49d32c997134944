#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace atom::cli {
namespace {

// A longer line is cut into several: input without line ends must not fill the memory.
constexpr size_t kMaxLine = size_t{16} << 20;

}  // namespace

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

LineReader::Outcome LineReader::read_line(std::string* line) {
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
