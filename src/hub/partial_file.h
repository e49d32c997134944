// A file that is downloaded in segments, in any order, and can be resumed. While it is incomplete a
// journal follows the data on disk: how much of each segment is there, a prefix. A file without a
// journal is a plain prefix of the data. Belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace atom::hub {

class PartialFile {
 public:
  struct Segment {
    uint64_t begin = 0;
    uint64_t size = 0;
    uint64_t done = 0;  // bytes from begin that are on disk
    uint64_t left() const { return size - done; }
  };

  // Opens or creates it. What is there counts as done when it fits and `may_resume`.
  static Result<PartialFile> open(const std::string& path,
                                  uint64_t size,
                                  uint64_t segment_size,
                                  bool may_resume);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  const std::vector<Segment>& segments() const { return segments_; }
  uint64_t bytes_done() const;
  bool complete() const { return bytes_done() == size_; }

  // Appends to what is done of a segment. An error when it does not fit there.
  Status append(size_t segment, std::string_view bytes);

  // Nothing is done any more; the file has one segment if `whole`.
  Status restart(bool whole);

  // Records what is done, so that it counts after a restart of the program.
  Status save();

  // Waits until the data is on the disk. Takes seconds: any thread may do it.
  static Status sync(const std::string& path);

  // Makes a complete file the blob: without journal, under its name.
  Status publish(const std::string& blob_path);

 private:
  PartialFile() = default;
  void divide(uint64_t segment_size);
  Result<bool> read_journal();
  Status write_at(uint64_t offset, std::string_view bytes);

  std::string path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
  uint64_t segment_size_ = 0;
  std::vector<Segment> segments_;
  uint64_t num_unsaved_ = 0;  // bytes appended since the journal was written
};

}  // namespace atom::hub
