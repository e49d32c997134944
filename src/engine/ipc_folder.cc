#include "engine/ipc_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/log.h"

namespace atom {
namespace {

constexpr const char* kPrefix = "atom-engine.";
constexpr const char* kLockName = "lock";
// Sockets have short paths: the folder's and "/responses-" and a number must fit.
constexpr size_t kMaxParentSize = 48;
// A folder that has no lock yet is left alone for so long.
constexpr time_t kUnlockedSeconds = 60;

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr) return names;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(entries);
  return names;
}

// The folder holds files and sockets only, else it stays.
void remove_folder(const std::string& path) {
  const FileDescriptor folder(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return;
  for (const std::string& name : names_in(folder.get())) {
    ::unlinkat(folder.get(), name.c_str(), 0);
  }
  ::rmdir(path.c_str());
}

// Whether `path` is a folder of ours whose owner is gone.
bool is_stale(const std::string& path) {
  const FileDescriptor folder(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0 || info.st_uid != ::geteuid()) {
    return false;
  }
  const FileDescriptor lock(
      ::openat(folder.get(), kLockName, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock.valid()) return std::time(nullptr) - info.st_mtime > kUnlockedSeconds;
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

void remove_stale_folders(const std::string& parent) {
  const FileDescriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return;
  for (const std::string& name : names_in(folder.get())) {
    const std::string path = parent + "/" + name;
    if (!name.starts_with(kPrefix) || !is_stale(path)) continue;
    log::debug("removing {}, left behind by a program that was killed", path);
    remove_folder(path);
  }
}

bool is_usable(const std::string& parent) {
  struct stat info {};
  return parent.starts_with('/') && parent.size() <= kMaxParentSize &&
         ::stat(parent.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         ::access(parent.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

Result<std::unique_ptr<IpcFolder>> IpcFolder::create(const std::string& parent) {
  const std::string chosen = is_usable(parent) ? parent : "/tmp";
  remove_stale_folders(chosen);
  // mkdtemp makes it for this user alone.
  std::string path = fmt::format("{}/{}{}.XXXXXX", chosen, kPrefix, ::getpid());
  if (::mkdtemp(path.data()) == nullptr) {
    return unavailable("cannot make a folder for sockets in {}: {}", chosen, std::strerror(errno));
  }
  // Nobody sees the lock before it is held.
  const std::string lock_path = path + "/" + kLockName;
  const std::string new_path = lock_path + ".new";
  FileDescriptor lock(
      ::open(new_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename(new_path.c_str(), lock_path.c_str()) != 0) {
    const Status status = unavailable("cannot lock {}: {}", path, std::strerror(errno));
    remove_folder(path);
    return status;
  }
  return std::unique_ptr<IpcFolder>(new IpcFolder(std::move(path), std::move(lock)));
}

IpcFolder::IpcFolder(std::string path, FileDescriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

IpcFolder::~IpcFolder() {
  remove_folder(path_);
}

}  // namespace atom
