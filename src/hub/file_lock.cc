#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace atom::hub {

Result<std::optional<FileLock>> FileLock::try_take(const std::string& path) {
  // Group-writable, so that users who share a cache can lock.
  FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0664));
  if (!file.valid()) {
    return invalid_argument("{}: cannot be opened for locking: {}", path, std::strerror(errno));
  }
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return std::optional<FileLock>();
    log::debug("{}: no locks on this file system: {}", path, std::strerror(errno));
    break;
  }
  // Whoever held it may have removed the file: then this lock is on nothing that others see.
  struct stat opened {};
  struct stat named {};
  const bool same = ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (!same) return std::optional<FileLock>();
  return std::optional<FileLock>(FileLock(std::move(file)));
}

}  // namespace atom::hub
