#include "hub/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace atom::hub {
namespace {

// The journal: magic, size of the file, size of a segment, then what is done of each segment; all
// of them 64 bits in the byte order of the machine.
constexpr uint64_t kMagic = 0x31627568'6d6f7461;  // "atomhub1"
constexpr size_t kHeaderWords = 3;
constexpr uint64_t kMaxSegments = uint64_t{1} << 20;
constexpr uint64_t kSaveInterval = uint64_t{1} << 20;  // bytes

uint64_t num_segments_of(uint64_t size, uint64_t segment_size) {
  return size / segment_size + (size % segment_size == 0 ? 0 : 1);
}

uint64_t journal_size(uint64_t num_segments) {
  return (kHeaderWords + num_segments) * sizeof(uint64_t);
}

bool read_at(const FileDescriptor& file, uint64_t offset, void* data, size_t size) {
  ssize_t got = 0;
  do {
    got = ::pread(file.get(), data, size, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(size);
}

}  // namespace

Result<PartialFile> PartialFile::open(const std::string& path,
                                      uint64_t size,
                                      uint64_t segment_size,
                                      bool may_resume) {
  PartialFile partial;
  partial.path_ = path;
  partial.size_ = size;
  // Whoever shares the cache may have put a link or a FIFO there.
  partial.file_ = FileDescriptor(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  struct stat info {};
  if (!partial.file_.valid() || ::fstat(partial.file_.get(), &info) != 0) {
    return invalid_argument("{}: cannot be written: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1) {
    return invalid_argument("{}: not a file of its own: remove it", path);
  }
  partial.divide(std::max(segment_size, size / kMaxSegments + 1));
  if (may_resume && static_cast<uint64_t>(info.st_size) > size) {
    ASSIGN_OR_RETURN(const bool resumed, partial.read_journal());
    if (resumed) return partial;
  } else if (may_resume) {
    uint64_t left = static_cast<uint64_t>(info.st_size);
    for (Segment& segment : partial.segments_) {
      segment.done = std::min(left, segment.size);
      left -= segment.done;
    }
    if (partial.complete()) return partial;
    RETURN_IF_ERROR(partial.save());
    return partial;
  }
  RETURN_IF_ERROR(partial.restart(/*whole=*/false));
  return partial;
}

void PartialFile::divide(uint64_t segment_size) {
  segment_size_ = segment_size;
  segments_.clear();
  for (uint64_t begin = 0; begin < size_; begin += segment_size) {
    segments_.push_back({begin, std::min(segment_size, size_ - begin), 0});
  }
}

// Whether there is a journal that fits the file; then its segments are taken.
Result<bool> PartialFile::read_journal() {
  uint64_t header[kHeaderWords];
  if (!read_at(file_, size_, header, sizeof header)) return false;
  const uint64_t segment_size = header[2];
  if (header[0] != kMagic || header[1] != size_ || segment_size == 0) return false;
  const uint64_t num_segments = num_segments_of(size_, segment_size);
  if (num_segments > kMaxSegments + 1) return false;
  std::vector<uint64_t> done(static_cast<size_t>(num_segments));
  if (!read_at(file_, size_ + sizeof header, done.data(), done.size() * sizeof(uint64_t))) {
    return false;
  }
  const uint64_t own_segment_size = segment_size_;
  divide(segment_size);
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (done[i] > segments_[i].size) {
      divide(own_segment_size);
      return false;
    }
    segments_[i].done = done[i];
  }
  return true;
}

uint64_t PartialFile::bytes_done() const {
  uint64_t done = 0;
  for (const Segment& segment : segments_) done += segment.done;
  return done;
}

Status PartialFile::write_at(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const std::string reason = std::strerror(errno);
      if (errno == ENOSPC || errno == EDQUOT) {
        return resource_exhausted("{}: cannot be written: {}", path_, reason);
      }
      return invalid_argument("{}: cannot be written: {}", path_, reason);
    }
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status PartialFile::append(size_t segment, std::string_view bytes) {
  Segment& target = segments_[segment];
  if (bytes.size() > target.left()) {
    return invalid_argument("the server sends more than the {} bytes that were asked for",
                            target.size);
  }
  RETURN_IF_ERROR(write_at(target.begin + target.done, bytes));
  target.done += bytes.size();
  num_unsaved_ += bytes.size();
  return target.left() == 0 || num_unsaved_ >= kSaveInterval ? save() : Status();
}

Status PartialFile::restart(bool whole) {
  // Emptied first, so that the space of what was wrong is free again.
  if (::ftruncate(file_.get(), 0) != 0) {
    return invalid_argument("{}: cannot be emptied: {}", path_, std::strerror(errno));
  }
  divide(whole ? std::max<uint64_t>(size_, 1) : segment_size_);
  return save();
}

Status PartialFile::save() {
  std::vector<uint64_t> words = {kMagic, size_, segment_size_};
  for (const Segment& segment : segments_) words.push_back(segment.done);
  num_unsaved_ = 0;
  return write_at(size_,
                  std::string_view(reinterpret_cast<const char*>(words.data()),
                                   journal_size(segments_.size())));
}

Status PartialFile::sync(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.valid() && ::fdatasync(file.get()) == 0) return {};
  return invalid_argument("{}: cannot be written: {}", path, std::strerror(errno));
}

Status PartialFile::publish(const std::string& blob_path) {
  CHECK(complete());
  const bool moved = ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0 &&
                     ::rename(path_.c_str(), blob_path.c_str()) == 0;
  if (!moved) {
    return invalid_argument("{}: cannot be written: {}", blob_path, std::strerror(errno));
  }
  file_.reset();
  return {};
}

}  // namespace atom::hub
