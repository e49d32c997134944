// The kernel's small text files, in /proc and /sys or, in tests, in a folder that looks like them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace atom::cli::doctor {

class SystemFiles {
 public:
  // `root` goes in front of every path.
  explicit SystemFiles(std::string root = "") : root_(std::move(root)) {}

  bool exists(const std::string& path) const;
  // The first 4 MiB, without white space at the end; empty when it is not to be read.
  std::string read(const std::string& path) const;
  // Names in a folder, sorted; empty when there is none.
  std::vector<std::string> list(const std::string& folder) const;
  // The integer that the file consists of; nothing for "max" and the like.
  std::optional<int64_t> read_integer(const std::string& path) const;
  // The rest of the first line "key: value" or, with "key=" as the key, "key=value";
  // empty when there is none.
  std::string read_field(const std::string& path, const std::string& key) const;

 private:
  std::string root_;
};

}  // namespace atom::cli::doctor
