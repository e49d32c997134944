#include "cli/line_editor/line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/utf8.h"

namespace atom::cli {
namespace {

constexpr size_t kMaxFile = 2 * LineHistory::kMaxEntries * LineHistory::kMaxEntry;
constexpr mode_t kOnlyOwner = 0600;

// One entry a line: \n of an entry is \ and n, and its \ is two.
std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') result += "\\\\";
    if (c == '\n') result += "\\n";
    if (c != '\\' && c != '\n') result += c;
  }
  return result + '\n';
}

std::string unescape(std::string_view line) {
  std::string result;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      result += line[++i] == 'n' ? '\n' : line[i];
    } else if (static_cast<unsigned char>(line[i]) >= ' ' || line[i] == '\t') {
      result += line[i];
    }
  }
  return to_valid_utf8(result);
}

Status failed(const char* what, const std::string& path) {
  return internal_error("cannot {} {}: {}", what, path, std::strerror(errno));
}

Status append(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOnlyOwner));
  if (!file.valid()) return failed("open", path);
  // In one piece, so that those of several programs do not mix.
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return failed("write to", path);
  }
  return {};
}

}  // namespace

Status LineHistory::load() {
  if (path_.empty() || !file_exists(path_)) return {};
  ASSIGN_OR_RETURN(const std::string text, read_file(path_, kMaxFile));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    entries_.push_back(unescape(std::string_view(text).substr(begin, end - begin)));
  }
  if (entries_.size() <= kMaxEntries) return {};
  const bool is_long = entries_.size() > 2 * kMaxEntries;
  entries_.erase(entries_.begin(), entries_.end() - kMaxEntries);
  if (!is_long) return {};
  std::string shorter;
  for (const std::string& entry : entries_) shorter += escape(entry);
  RETURN_IF_ERROR(replace_file(path_, shorter));
  return ::chmod(path_.c_str(), kOnlyOwner) == 0 ? Status() : failed("protect", path_);
}

Status LineHistory::add(const std::string& text) {
  if (text.empty() || text.size() > kMaxEntry) return {};
  if (!entries_.empty() && entries_.back() == text) return {};
  entries_.push_back(text);
  return path_.empty() ? Status() : append(path_, escape(text));
}

}  // namespace atom::cli
