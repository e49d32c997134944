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
// Sockets have short paths: the folder's and "/responses-" and a number must fit.
constexpr size_t kMaxParentSize = 48;
// An empty folder that nobody has locked is left alone for so long.
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

// Whether the name still leads to the folder, which others must not have been able to replace.
bool leads_to(const std::string& path, const FileDescriptor& folder) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(folder.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino &&
         opened.st_uid == ::geteuid();
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
  // Its owner may not have come to lock it.
  if (std::time(nullptr) - info.st_ctime <= kUnlockedSeconds && names_in(folder.get()).empty()) {
    return false;
  }
  return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0;
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

// Whoever else owned the parent, or might write to it, could take the folder away.
bool is_usable(const std::string& parent) {
  struct stat info {};
  return parent.starts_with('/') && parent.size() <= kMaxParentSize &&
         ::stat(parent.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
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
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid() || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 || !leads_to(path, folder)) {
    const Status status = unavailable("cannot lock {}: {}", path, std::strerror(errno));
    ::rmdir(path.c_str());
    return status;
  }
  return std::unique_ptr<IpcFolder>(new IpcFolder(std::move(path), std::move(folder)));
}

IpcFolder::IpcFolder(std::string path, FileDescriptor folder)
    : path_(std::move(path)), folder_(std::move(folder)) {}

bool IpcFolder::is_intact() const {
  return leads_to(path_, folder_);
}

IpcFolder::~IpcFolder() {
  if (is_intact()) remove_folder(path_);
}

}  // namespace atom
