#include "tests/support/test_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"

namespace atom {
namespace {

std::string folder_from(const char* variable, const char* fallback) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

std::string golden_folder() {
  return folder_from("ATOM_GOLDEN_DIR", ATOM_DEFAULT_GOLDEN_DIR);
}

std::string demo_model_folder() {
  return ATOM_DEMO_MODEL_DIR;
}

std::vector<std::string> golden_case_folders() {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder(), error)) {
    if (std::filesystem::exists(entry.path() / "checkpoint.json")) {
      folders.push_back(entry.path().string());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::optional<std::string> shared_folder() {
  const std::string folder = folder_from("ATOM_SHARED_DIR", ATOM_DEFAULT_SHARED_DIR);
  if (!std::filesystem::is_directory(folder)) return std::nullopt;
  return folder;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path().string() + "/atom-test-XXXXXX";
  CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace atom
