#include "cli/report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file.h"
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

Status check_writable(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return invalid_argument("{}: is a folder, so no file of that name can be written", path);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string target = file_exists(path) ? path : folder.empty() ? "." : folder.string();
  if (access(target.c_str(), W_OK) == 0) return {};
  return invalid_argument("{}: cannot be written: {}: {}", path, target, std::strerror(errno));
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
