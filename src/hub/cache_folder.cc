#include "hub/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "hub/model_name.h"

namespace atom::hub {
namespace {

std::string folder_name(const std::string& model_name) {
  std::string name = "models--" + model_name;
  const size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.replace(slash, 1, "--");
}

// A name beside `path` that no other thread or process uses.
std::string temporary_path(const std::string& path) {
  static std::atomic<int> counter{0};
  return fmt::format("{}.{}-{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

Status move_into_place(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const Status status = invalid_argument("{}: cannot be written: {}", path, std::strerror(errno));
  ::unlink(temporary.c_str());
  return status;
}

}  // namespace

CacheFolder::CacheFolder(const std::string& cache_folder, const std::string& model_name)
    : path_(cache_folder + "/" + folder_name(model_name)),
      locks_path_(cache_folder + "/.locks/" + folder_name(model_name)) {}

std::string CacheFolder::blob_path(const std::string& etag) const {
  return path_ + "/blobs/" + etag;
}

std::string CacheFolder::partial_path(const std::string& etag) const {
  return blob_path(etag) + ".atom-incomplete";
}

std::string CacheFolder::python_partial_path(const std::string& etag) const {
  return blob_path(etag) + ".incomplete";
}

std::string CacheFolder::lock_path(const std::string& etag) const {
  return locks_path_ + "/" + etag + ".lock";
}

std::string CacheFolder::snapshot_folder(const std::string& commit) const {
  return path_ + "/snapshots/" + commit;
}

std::string CacheFolder::file_path(const std::string& commit, const std::string& file) const {
  return snapshot_folder(commit) + "/" + file;
}

Status CacheFolder::create() const {
  for (const std::string& folder : {path_ + "/blobs", path_ + "/snapshots", locks_path_}) {
    RETURN_IF_ERROR(make_folders(folder));
  }
  return {};
}

std::optional<std::string> CacheFolder::find_commit(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  constexpr size_t kMaxRefBytes = 100;
  const Result<std::string> text = read_file(path_ + "/refs/" + revision, kMaxRefBytes);
  if (!text.ok()) return std::nullopt;
  const std::string commit = text->substr(0, text->find_last_not_of(" \r\n") + 1);
  if (!is_commit(commit)) return std::nullopt;
  return commit;
}

Status CacheFolder::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || find_commit(revision) == commit) return {};
  const std::string path = path_ + "/refs/" + revision;
  RETURN_IF_ERROR(make_folders(std::filesystem::path(path).parent_path()));
  const std::string temporary = temporary_path(path);
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  const bool written = file.valid() && ::write(file.get(), commit.data(), commit.size()) ==
                                           static_cast<ssize_t>(commit.size());
  if (!written) {
    return invalid_argument("{}: cannot be written: {}", temporary, std::strerror(errno));
  }
  return move_into_place(temporary, path);
}

Status CacheFolder::link(const std::string& commit,
                         const std::string& file,
                         const std::string& etag) const {
  const std::string path = file_path(commit, file);
  RETURN_IF_ERROR(make_folders(std::filesystem::path(path).parent_path()));
  std::string target = "../../";  // relative, so that the cache may be moved
  for (const char c : file) target += c == '/' ? "../" : "";
  target += "blobs/" + etag;
  const std::string temporary = temporary_path(path);
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    return invalid_argument("{}: cannot be linked to its blob: {}", path, std::strerror(errno));
  }
  return move_into_place(temporary, path);
}

std::optional<uint64_t> file_size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return invalid_argument("{}: cannot be created: {}", path, error.message());
}

}  // namespace atom::hub
