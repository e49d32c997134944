#include "cli/doctor/system_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace atom::cli::doctor {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr const char* kSpace = " \t\n\r";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

bool SystemFiles::exists(const std::string& path) const {
  std::error_code error;
  return std::filesystem::exists(root_ + path, error);
}

std::string SystemFiles::read(const std::string& path) const {
  std::ifstream file(root_ + path, std::ios::binary);
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  text.erase(text.find_last_not_of(kSpace) + 1);
  return text;
}

std::vector<std::string> SystemFiles::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root_ + folder, error), end;
       !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> SystemFiles::read_integer(const std::string& path) const {
  const std::string text = read(path);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string SystemFiles::read_field(const std::string& path, const std::string& key) const {
  std::istringstream lines(read(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t", key.size());
    if (begin == std::string::npos) continue;
    if (line[begin] == ':') return trimmed(line.substr(begin + 1));
    if (key.ends_with('=')) return trimmed(line.substr(begin));
  }
  return "";
}

}  // namespace atom::cli::doctor
