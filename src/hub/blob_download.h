// One blob on its way into the cache: waits for its lock, keeps track of its segments, verifies the
// whole and makes it visible. Who owns it moves the bytes. Belongs to one thread, but for the
// checksum, which is computed in another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/cache_folder.h"
#include "hub/file_lock.h"
#include "hub/hub_options.h"
#include "hub/partial_file.h"

namespace atom::hub {

struct WantedBlob {
  std::string etag;
  uint64_t size = 0;
  std::vector<std::string> files;  // of the snapshot, at least one, that have this content
};

class BlobDownload {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State {
    kQueued,     // not begun, or another process has its lock
    kFetching,   // segments are missing
    kVerifying,  // all bytes are there
    kDone,       // the snapshot leads to it
  };

  BlobDownload(WantedBlob wanted,
               const std::string& commit,
               const CacheFolder& cache,
               const HubOptions& options);
  ~BlobDownload();
  BlobDownload(const BlobDownload&) = delete;
  BlobDownload& operator=(const BlobDownload&) = delete;

  const WantedBlob& wanted() const { return wanted_; }
  const std::string& file() const { return wanted_.files[0]; }
  State state() const { return state_; }
  bool waiting_for_other() const { return state_ == State::kQueued && locked_out_; }
  bool downloaded() const { return downloaded_; }  // by us, not found
  uint64_t bytes_done() const;
  // Bytes that downloading will still take on the disk.
  uint64_t bytes_needed() const;

  // Goes on as far as it can without bytes from the network. An error ends the download.
  Status advance();

  // A segment that nobody fetches and that is due, for begin_segment().
  std::optional<size_t> next_segment(Clock::time_point now) const;
  void begin_segment(size_t index) { progress_[index].running = true; }
  void end_segment(size_t index) { progress_[index].running = false; }
  // Counts a failed attempt; returns how many there were since one made progress.
  int count_failure(size_t index, uint64_t num_received);
  void postpone(size_t index, Clock::time_point due) { progress_[index].due = due; }
  std::optional<Clock::time_point> next_due() const;

  const PartialFile::Segment& segment(size_t index) const { return partial_->segments()[index]; }
  // Whether requests ask for ranges; a server that has none sends the whole.
  bool whole() const { return whole_; }
  bool starts_at_zero_and_is_all(size_t index) const;
  Status append(size_t index, std::string_view bytes) { return partial_->append(index, bytes); }
  // Nothing is fetched any more; no segment may be running.
  Status restart_whole();

  // Where the hub's redirect leads, so that not every segment asks the hub. Empty: ask it.
  const std::string& location() const { return location_; }
  void set_location(const std::string& url) {
    if (may_reuse_location_) location_ = url;
  }
  // It may be signed for a time, or for one range only: then each segment asks.
  void refuse_location() {
    may_reuse_location_ = false;
    location_.clear();
  }

 private:
  struct SegmentProgress {
    bool running = false;
    int num_failures = 0;
    Clock::time_point due{};
  };

  Status try_begin();
  Status open_partial();
  Status begin_verification();
  Status finish_verification();
  Status make_visible();

  const WantedBlob wanted_;
  const std::string commit_;
  const CacheFolder& cache_;
  const HubOptions& options_;

  State state_ = State::kQueued;
  bool locked_out_ = false;
  bool downloaded_ = false;
  bool whole_ = false;
  bool may_reuse_location_ = true;
  std::string location_;
  int num_mismatches_ = 0;
  Clock::time_point next_try_{};  // of the lock
  std::optional<FileLock> lock_;
  std::optional<PartialFile> partial_;
  std::vector<SegmentProgress> progress_;  // one per segment
  std::atomic<bool> stop_{false};
  std::future<Result<std::string>> checksum_;
};

}  // namespace atom::hub
