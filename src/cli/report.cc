#include "cli/report.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/style.h"

namespace atom::cli {

namespace {

// A message may quote a file, of which anything may be ten megabytes long.
constexpr size_t kMaxMessageSize = 4000;

}  // namespace

int fail(const Status& status) {
  const Style style = Style::for_stream(stderr);
  std::string message = status.message();
  if (message.size() > kMaxMessageSize) message.replace(kMaxMessageSize, message.npos, "...");
  fmt::print(stderr, "{} {}\n", style.red("error:"), printable(message, true));
  return kExitError;
}

int fail_usage(std::string_view command, const Status& status) {
  (void)fail(status);
  fmt::print(
      stderr, "Run 'atom {}{}--help' for what is possible.\n", command, command.empty() ? "" : " ");
  return kExitUsage;
}

void note(std::string_view line) {
  fmt::print(stderr, "{}\n", Style::for_stream(stderr).dim(line));
}

bool write_out(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written;
}

int end_of_output() {
  if (errno == EPIPE) return kExitError;
  return fail(unavailable("cannot write to standard output: {}", std::strerror(errno)));
}

}  // namespace atom::cli
