// A folder that looks like the root of a machine, for tests. Removed at the end.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace atom::cli::doctor {

class FakeSystem {
 public:
  // Paths and contents.
  explicit FakeSystem(const std::map<std::string, std::string>& contents) {
    std::string name = (std::filesystem::temp_directory_path() / "atom-doctor-XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const auto& [path, content] : contents) {
      const std::filesystem::path file = root_ + path;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary) << content;
    }
  }
  ~FakeSystem() { std::filesystem::remove_all(root_); }
  FakeSystem(const FakeSystem&) = delete;
  FakeSystem& operator=(const FakeSystem&) = delete;

  SystemFiles files() const { return SystemFiles(root_); }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// The finding of that name; an empty one when there is none.
inline Finding find(const Findings& findings, const std::string& name) {
  for (const Finding& finding : findings) {
    if (finding.name == name) return finding;
  }
  return {};
}

}  // namespace atom::cli::doctor
