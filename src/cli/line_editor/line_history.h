// What was typed at a prompt, kept in a file of the user's from one start to the next. Several
// programs may write the file; each sees what was there when it started.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace atom::cli {

class LineHistory {
 public:
  static constexpr size_t kMaxEntries = 1000;
  static constexpr size_t kMaxEntry = 64 << 10;  // bytes; longer ones are not kept

  // Nothing is kept on disk when `path` is empty.
  explicit LineHistory(std::string path = {}) : path_(std::move(path)) {}

  // Reads the file, if there is one, and cuts it when it has grown long.
  Status load();
  // Remembers a text that is neither empty nor the last one again; makes the file and its folder,
  // for this user alone.
  Status add(const std::string& text);

  const std::vector<std::string>& entries() const { return entries_; }  // the oldest first

 private:
  const std::string path_;
  std::vector<std::string> entries_;
};

}  // namespace atom::cli
