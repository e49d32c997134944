// The lock that huggingface_hub takes on a blob: flock() on a file of its own. Held by at most one
// object, in whichever thread or process; goes with the object.
#pragma once

#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace atom::hub {

class FileLock {
 public:
  // Nothing when another holds it. Where the file system has no locks, the lock counts as taken:
  // concurrent downloads of a blob then write the same bytes to the same places.
  static Result<std::optional<FileLock>> try_take(const std::string& path);

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

}  // namespace atom::hub
