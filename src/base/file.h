// Reading and replacing whole small files, and mapping large ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace atom {

bool file_exists(const std::string& path);

// The whole file; an error that names the path when it is absent, not a regular file, unreadable or
// larger than max_bytes.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

// Makes `path` hold `text`, at once for those who read it meanwhile; makes its folder when that is
// missing.
Status replace_file(const std::string& path, const std::string& text);

// Writes `text` into the file, whatever it held; may also be a pipe or a device.
Status write_file(const std::string& path, const std::string& text);

// A read-only file held in memory, either mapped or read into a private buffer. Immutable.
class FileBytes {
 public:
  // `use_mmap` false reads the file instead (network file systems, ATOM_DISABLE_MMAP).
  static Result<std::shared_ptr<const FileBytes>> open(const std::string& path, bool use_mmap);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [offset, offset + size) is not needed again, so that a mapped checkpoint
  // does not stay resident after it was copied. No effect on a buffer.
  void release(size_t offset, size_t size) const;

 private:
  FileBytes() = default;
  std::string path_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace atom
