#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file_descriptor.h"

namespace atom {
namespace {

// A FIFO without a writer is opened at once, too, and then found to be none of ours.
constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

// The size of an open regular file.
Result<size_t> regular_file_size(const FileDescriptor& file, const std::string& path) {
  if (file.get() < 0) {
    if (errno == ENOENT) return not_found("{}: no such file", path);
    return invalid_argument("{}: cannot open: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    return invalid_argument("{}: cannot stat: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: not a regular file", path);
  return static_cast<size_t>(info.st_size);
}

Status read_fully(const FileDescriptor& file, const std::string& path, uint8_t* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(file.get(), data + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return invalid_argument("{}: cannot read: {}", path, std::strerror(errno));
    if (got == 0) {
      return invalid_argument("{}: ended at byte {} of {} while it was read", path, done, size);
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace

bool file_exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), kReading));
  ASSIGN_OR_RETURN(const size_t size, regular_file_size(file, path));
  if (size > max_bytes) {
    return invalid_argument("{}: {} bytes is over the limit of {}", path, size, max_bytes);
  }
  std::string text(size, '\0');
  RETURN_IF_ERROR(read_fully(file, path, reinterpret_cast<uint8_t*>(text.data()), size));
  return text;
}

Status write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return not_found("{}: cannot be written", path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && written) return {};
  return resource_exhausted("{}: writing failed", path);
}

Status replace_file(const std::string& path, const std::string& text) {
  const auto failed = [&] {
    return invalid_argument("{}: cannot be written: {}", path, std::strerror(errno));
  };
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return failed();
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  if (done == text.size() && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const Status status = failed();
  ::unlink(temporary.c_str());
  return status;
}

Result<std::shared_ptr<const FileBytes>> FileBytes::open(const std::string& path, bool use_mmap) {
  const FileDescriptor file(::open(path.c_str(), kReading));
  ASSIGN_OR_RETURN(const size_t size, regular_file_size(file, path));
  std::shared_ptr<FileBytes> bytes(new FileBytes());
  bytes->path_ = path;
  bytes->size_ = size;
  if (size == 0) return std::shared_ptr<const FileBytes>(bytes);
  if (use_mmap) {
    void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapping == MAP_FAILED) {
      return resource_exhausted("{}: cannot map {} bytes: {}", path, size, std::strerror(errno));
    }
    bytes->data_ = static_cast<uint8_t*>(mapping);
    bytes->mapped_ = true;
    ::madvise(mapping, size, MADV_SEQUENTIAL);
  } else {
    bytes->data_ = static_cast<uint8_t*>(std::malloc(size));
    if (bytes->data_ == nullptr) {
      return resource_exhausted("{}: cannot allocate {} bytes to read it", path, size);
    }
    RETURN_IF_ERROR(read_fully(file, path, bytes->data_, size));
  }
  return std::shared_ptr<const FileBytes>(bytes);
}

FileBytes::~FileBytes() {
  if (mapped_) {
    ::munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

void FileBytes::release(size_t offset, size_t size) const {
  if (!mapped_) return;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (end > begin) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace atom
