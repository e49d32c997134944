#include "hub/blob_download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "hub/checksum.h"

namespace atom::hub {
namespace {

constexpr auto kLockInterval = std::chrono::milliseconds(100);
constexpr uint64_t kRealProgress = uint64_t{64} << 10;  // bytes that make an attempt a success
constexpr int kMaxMismatches = 2;
constexpr uint64_t kBlockSize = 512;  // unit of st_blocks

uint64_t bytes_on_disk(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kBlockSize : 0;
}

}  // namespace

BlobDownload::BlobDownload(WantedBlob wanted,
                           const std::string& commit,
                           const CacheFolder& cache,
                           const HubOptions& options)
    : wanted_(std::move(wanted)), commit_(commit), cache_(cache), options_(options) {}

BlobDownload::~BlobDownload() {
  stop_ = true;
  if (state_ == State::kFetching && partial_) (void)partial_->save();
}

uint64_t BlobDownload::bytes_done() const {
  if (state_ == State::kDone) return wanted_.size;
  return partial_ ? partial_->bytes_done() : 0;
}

uint64_t BlobDownload::bytes_needed() const {
  if (file_size(cache_.blob_path(wanted_.etag)) == wanted_.size) return 0;
  const uint64_t there = bytes_on_disk(cache_.partial_path(wanted_.etag)) +
                         bytes_on_disk(cache_.python_partial_path(wanted_.etag));
  return wanted_.size - std::min(there, wanted_.size);
}

Status BlobDownload::advance() {
  if (state_ == State::kQueued) RETURN_IF_ERROR(try_begin());
  if (state_ == State::kFetching && partial_->complete()) RETURN_IF_ERROR(begin_verification());
  if (state_ == State::kVerifying) RETURN_IF_ERROR(finish_verification());
  return {};
}

Status BlobDownload::try_begin() {
  if (Clock::now() < next_try_) return {};
  next_try_ = Clock::now() + kLockInterval;
  ASSIGN_OR_RETURN(lock_, FileLock::try_take(cache_.lock_path(wanted_.etag)));
  locked_out_ = !lock_.has_value();
  if (locked_out_) return {};
  if (file_size(cache_.blob_path(wanted_.etag)) == wanted_.size) return make_visible();
  return open_partial();
}

Status BlobDownload::open_partial() {
  const std::string path = cache_.partial_path(wanted_.etag);
  const std::string python_path = cache_.python_partial_path(wanted_.etag);
  const bool verifiable = is_checksum(wanted_.etag);
  if (verifiable && !file_size(path) && file_size(python_path).value_or(0) > 0) {
    (void)::rename(python_path.c_str(), path.c_str());
  }
  // After a crash of the machine the journal may know more than the disk: only a checksum tells.
  ASSIGN_OR_RETURN(partial_,
                   PartialFile::open(path, wanted_.size, options_.segment_size, verifiable));
  progress_.assign(partial_->segments().size(), {});
  state_ = State::kFetching;
  return {};
}

Status BlobDownload::begin_verification() {
  state_ = State::kVerifying;
  const auto compute = [this, path = partial_->path()]() -> Result<std::string> {
    if (!is_checksum(wanted_.etag)) {
      log::warning("{}: the hub gives no checksum, so only its size was verified", file());
      return wanted_.etag;
    }
    ASSIGN_OR_RETURN(std::string sum, file_checksum(path, wanted_.size, wanted_.etag, stop_));
    if (options_.durable) RETURN_IF_ERROR(PartialFile::sync(path));
    return sum;
  };
  checksum_ = std::async(std::launch::async, compute);
  return {};
}

Status BlobDownload::finish_verification() {
  if (checksum_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  ASSIGN_OR_RETURN(const std::string sum, checksum_.get());
  if (sum == wanted_.etag) {
    RETURN_IF_ERROR(partial_->publish(cache_.blob_path(wanted_.etag)));
    downloaded_ = true;
    return make_visible();
  }
  if (++num_mismatches_ >= kMaxMismatches) {
    ::unlink(partial_->path().c_str());
    return invalid_argument(
        "{}: the checksum of what was downloaded is {}, and should be {}; the wrong data is "
        "deleted. Try again; if it stays wrong, something between here and {} changes the data",
        file(),
        sum,
        wanted_.etag,
        options_.endpoint);
  }
  log::warning(
      "{}: the checksum is {}, and should be {}: downloaded again", file(), sum, wanted_.etag);
  RETURN_IF_ERROR(partial_->restart(whole_));
  progress_.assign(partial_->segments().size(), {});
  location_.clear();
  state_ = State::kFetching;
  return {};
}

Status BlobDownload::make_visible() {
  for (const std::string& name : wanted_.files) {
    RETURN_IF_ERROR(cache_.link(commit_, name, wanted_.etag));
  }
  lock_.reset();
  partial_.reset();
  state_ = State::kDone;
  return {};
}

std::optional<size_t> BlobDownload::next_segment(Clock::time_point now) const {
  if (state_ != State::kFetching) return std::nullopt;
  for (size_t i = 0; i < progress_.size(); ++i) {
    if (!progress_[i].running && segment(i).left() > 0 && progress_[i].due <= now) return i;
  }
  return std::nullopt;
}

std::optional<BlobDownload::Clock::time_point> BlobDownload::next_due() const {
  std::optional<Clock::time_point> next;
  if (state_ != State::kFetching) return next;
  for (size_t i = 0; i < progress_.size(); ++i) {
    if (progress_[i].running || segment(i).left() == 0) continue;
    if (!next || progress_[i].due < *next) next = progress_[i].due;
  }
  return next;
}

int BlobDownload::count_failure(size_t index, uint64_t num_received) {
  // Without range support each attempt restarts, so its bytes do not count as progress.
  if (!whole_ && num_received >= kRealProgress) progress_[index].num_failures = 0;
  return ++progress_[index].num_failures;
}

bool BlobDownload::starts_at_zero_and_is_all(size_t index) const {
  return segment(index).done == 0 && segment(index).size == wanted_.size;
}

Status BlobDownload::restart_whole() {
  for (const SegmentProgress& progress : progress_) CHECK(!progress.running);
  const int num_failures = whole_ ? progress_[0].num_failures : 0;
  const Clock::time_point due = whole_ ? progress_[0].due : Clock::time_point{};
  whole_ = true;
  RETURN_IF_ERROR(partial_->restart(/*whole=*/true));
  progress_.assign(1, {});
  progress_[0].num_failures = num_failures;
  progress_[0].due = due;
  return {};
}

}  // namespace atom::hub
