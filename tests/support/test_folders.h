// Where tests find their data and leave their files.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace atom {

// The golden cases: ATOM_GOLDEN_DIR when set, else tests/data/golden of the source tree.
std::string golden_folder();

// The folders of `golden_folder()` that hold a case, sorted.
std::vector<std::string> golden_case_folders();

// models/tldr-8m of the source tree.
std::string demo_model_folder();

// Test data that stays beside the project: ATOM_SHARED_DIR when set, else ../shared. Nothing when
// there is no such folder; a test that needs it then skips.
std::optional<std::string> shared_folder();

// A new empty folder that is removed with everything in it when the object goes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace atom
