// A private folder for the sockets between a front end and its engine's process, removed with the
// object. Not movable.
#pragma once

#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace atom {

class IpcFolder {
 public:
  // Under `parent` or, when that does not work (empty, absent, not ours, open to others), under
  // /tmp. Removes first what programs that were killed have left there.
  static Result<std::unique_ptr<IpcFolder>> create(const std::string& parent);
  ~IpcFolder();
  IpcFolder(const IpcFolder&) = delete;
  IpcFolder& operator=(const IpcFolder&) = delete;

  const std::string& path() const { return path_; }
  // False once it was removed, renamed or replaced: its owner needs a new one.
  bool is_intact() const;

 private:
  IpcFolder(std::string path, FileDescriptor folder);

  const std::string path_;
  // The folder itself, locked while the owner lives: how others tell that it does.
  const FileDescriptor folder_;
};

}  // namespace atom
