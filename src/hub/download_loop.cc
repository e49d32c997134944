#include "hub/download_loop.h"

#include <algorithm>
#include <cstdlib>

#include "base/human.h"
#include "base/log.h"
#include "hub/hub_api.h"
#include "hub/retry.h"

namespace atom::hub {
namespace {

constexpr int kPollMilliseconds = 100;
constexpr int kVerifyPollMilliseconds = 10;

struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string total;  // "*": not said
};

// "bytes 0-99/1000"
std::optional<ContentRange> parse_content_range(const std::string& text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  ContentRange range;
  const char* at = text.c_str() + kUnit.size();
  char* end = nullptr;
  range.first = std::strtoull(at, &end, 10);
  if (end == at || *end != '-') return std::nullopt;
  at = end + 1;
  range.last = std::strtoull(at, &end, 10);
  if (end == at || *end != '/' || range.last < range.first) return std::nullopt;
  range.total = end + 1;
  return range;
}

}  // namespace

// The request for a segment, or what is left of it.
class SegmentTransfer : public HttpReceiver {
 public:
  SegmentTransfer(BlobDownload* blob, size_t index)
      : blob_(blob),
        index_(index),
        begin_(blob->segment(index).begin + blob->segment(index).done),
        end_(blob->segment(index).begin + blob->segment(index).size),
        ranged_(!blob->starts_at_zero_and_is_all(index)),
        redirected_(!blob->location().empty()) {}

  HttpRequest request(const std::string& url) const {
    HttpRequest request;
    request.url = redirected_ ? blob_->location() : url;
    if (ranged_) {
      request.begin = begin_;
      request.end = end_;
    }
    return request;
  }

  Status on_headers(const HttpReply& reply) override {
    const std::string encoding = reply.header("content-encoding");
    if (!encoding.empty() && encoding != "identity") {
      return invalid_argument("the server sends it as {}, which was not asked for", encoding);
    }
    if (reply.status == 200 && ranged_) {
      no_ranges_ = true;
      return unavailable("the server sends no part of a file");
    }
    if (reply.status != (ranged_ ? 206 : 200)) {
      return invalid_argument("the server answers {} to a request for content", reply.status);
    }
    return ranged_ ? check_range(reply) : check_length(reply);
  }

  Status on_body(std::string_view bytes) override {
    RETURN_IF_ERROR(blob_->append(index_, bytes));
    num_received_ += bytes.size();
    return {};
  }

  BlobDownload* blob() const { return blob_; }
  size_t index() const { return index_; }
  bool redirected() const { return redirected_; }  // asked where an earlier redirect led
  bool no_ranges() const { return no_ranges_; }
  uint64_t num_received() const { return num_received_; }

 private:
  Status check_range(const HttpReply& reply) const {
    const std::string text = reply.header("content-range");
    const std::optional<ContentRange> range = parse_content_range(text);
    const std::string size = std::to_string(blob_->wanted().size);
    const bool valid = range && range->first == begin_ && range->last < end_ &&
                       (range->total == "*" || range->total == size);
    if (valid) return {};
    return invalid_argument("the server sends the bytes '{}'; asked for were {}-{} of {}",
                            text.substr(0, 100),
                            begin_,
                            end_ - 1,
                            size);
  }

  Status check_length(const HttpReply& reply) const {
    const std::string length = reply.header("content-length");
    const std::string size = std::to_string(blob_->wanted().size);
    if (length.empty() || length == size) return {};
    return invalid_argument(
        "the server sends {} bytes, and lists the file with {}", length.substr(0, 100), size);
  }

  BlobDownload* const blob_;
  const size_t index_;
  const uint64_t begin_;
  const uint64_t end_;
  const bool ranged_;
  const bool redirected_;
  bool no_ranges_ = false;
  uint64_t num_received_ = 0;
};

DownloadLoop::DownloadLoop(HttpClient* client,
                           const CacheFolder& cache,
                           const HubOptions& options,
                           const ModelName& model,
                           const std::string& commit,
                           const ProgressHandler* handler)
    : client_(client),
      cache_(cache),
      options_(options),
      model_(model),
      commit_(commit),
      handler_(handler) {}

DownloadLoop::~DownloadLoop() {
  for (const auto& [id, transfer] : transfers_) client_->cancel(id);
}

Status DownloadLoop::run(const std::vector<WantedBlob>& blobs) {
  blobs_.clear();
  for (const WantedBlob& wanted : blobs) {
    blobs_.push_back(std::make_unique<BlobDownload>(wanted, commit_, cache_, options_));
  }
  RETURN_IF_ERROR(check_space());
  while (true) {
    RETURN_IF_ERROR(advance_all());
    if (!report()) return Status(StatusCode::kAborted, "the download was stopped");
    if (all_done()) break;
    for (const HttpOutcome& outcome : client_->poll(milliseconds_to_wait())) {
      RETURN_IF_ERROR(settle(outcome));
    }
  }
  for (const auto& blob : blobs_) {
    if (blob->downloaded()) counts_.num_files += static_cast<int>(blob->wanted().files.size());
  }
  return {};
}

Status DownloadLoop::check_space() const {
  uint64_t needed = 0;
  for (const auto& blob : blobs_) needed += blob->bytes_needed();
  if (needed == 0 || !options_.available_bytes) return {};
  ASSIGN_OR_RETURN(const uint64_t available, options_.available_bytes(cache_.path()));
  if (needed <= available) return {};
  return resource_exhausted(
      "{}: {} ({} bytes) are to be downloaded to {}, and {} ({} bytes) are free there: make room, "
      "or set HF_HUB_CACHE to a folder on a larger disk",
      model_.to_string(),
      human_bytes(static_cast<int64_t>(needed)),
      needed,
      cache_.path(),
      human_bytes(static_cast<int64_t>(available)),
      available);
}

Status DownloadLoop::advance_all() {
  for (const auto& blob : blobs_) {
    using State = BlobDownload::State;
    const size_t limit = static_cast<size_t>(options_.max_connections);
    // Locks are taken late, so that several processes share the files of a model among them.
    if (blob->state() == State::kQueued && transfers_.size() >= limit) continue;
    if (blob->state() != State::kDone) RETURN_IF_ERROR(blob->advance());
    const Clock::time_point now = Clock::now();
    while (transfers_.size() < limit && now >= paused_until_) {
      const std::optional<size_t> segment = blob->next_segment(now);
      if (!segment) break;
      start_transfer(blob.get(), *segment);
    }
  }
  return {};
}

void DownloadLoop::start_transfer(BlobDownload* blob, size_t segment) {
  auto transfer = std::make_unique<SegmentTransfer>(blob, segment);
  const std::string url = file_url(options_, model_, commit_, blob->file());
  blob->begin_segment(segment);
  const int64_t id = client_->start(transfer->request(url), transfer.get());
  transfers_.emplace(id, std::move(transfer));
}

void DownloadLoop::cancel_transfers_of(const BlobDownload* blob) {
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    if (it->second->blob() != blob) {
      ++it;
      continue;
    }
    client_->cancel(it->first);
    it->second->blob()->end_segment(it->second->index());
    it = transfers_.erase(it);
  }
}

Status DownloadLoop::settle(const HttpOutcome& outcome) {
  const auto it = transfers_.find(outcome.id);
  if (it == transfers_.end()) return {};  // cancelled when another of this round ended
  const std::unique_ptr<SegmentTransfer> transfer = std::move(it->second);
  transfers_.erase(it);
  BlobDownload* blob = transfer->blob();
  counts_.num_bytes += transfer->num_received();
  blob->end_segment(transfer->index());
  if (transfer->no_ranges()) {
    cancel_transfers_of(blob);
    return blob->restart_whole();
  }
  if (!outcome.success()) return settle_failure(*transfer, outcome);
  const uint64_t left = blob->segment(transfer->index()).left();
  if (left > 0) {
    HttpOutcome cut = outcome;
    cut.transient = true;
    cut.status = unavailable("the server ended the file {} bytes early", left);
    return settle_failure(*transfer, std::move(cut));
  }
  blob->set_location(outcome.reply.url);
  return {};
}

Status DownloadLoop::settle_failure(const SegmentTransfer& transfer, HttpOutcome outcome) {
  BlobDownload* blob = transfer.blob();
  const int num_failures = blob->count_failure(transfer.index(), transfer.num_received());
  std::optional<std::chrono::milliseconds> delay =
      delay_before_retry(outcome, num_failures, options_);
  const bool refused =
      transfer.redirected() && outcome.status.ok() && outcome.reply.status / 100 == 4;
  if (refused) blob->refuse_location();
  if (!delay && refused && num_failures < options_.max_attempts) {
    delay = std::chrono::milliseconds(0);
  }
  if (!delay) return explain_failure(outcome, model_, blob->file(), options_);
  const std::string reason =
      outcome.status.ok() ? std::to_string(outcome.reply.status) : outcome.status.message();
  log::debug("{}: {}: again in {} ms", blob->file(), reason, delay->count());
  const Clock::time_point due = Clock::now() + *delay;
  if (outcome.reply.status == 429) paused_until_ = std::max(paused_until_, due);
  blob->postpone(transfer.index(), due);
  return blob->whole() ? blob->restart_whole() : Status();
}

bool DownloadLoop::all_done() const {
  return std::all_of(blobs_.begin(), blobs_.end(), [](const auto& blob) {
    return blob->state() == BlobDownload::State::kDone;
  });
}

int DownloadLoop::milliseconds_to_wait() const {
  int wait = kPollMilliseconds;
  const Clock::time_point now = Clock::now();
  for (const auto& blob : blobs_) {
    if (blob->state() == BlobDownload::State::kVerifying) {
      wait = std::min(wait, kVerifyPollMilliseconds);
    }
    const std::optional<Clock::time_point> due = blob->next_due();
    if (!due || transfers_.size() >= static_cast<size_t>(options_.max_connections)) continue;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(std::max(*due, paused_until_) - now);
    wait = static_cast<int>(std::clamp<int64_t>(left.count(), 0, wait));
  }
  return wait;
}

bool DownloadLoop::report() const {
  if (handler_ == nullptr || !*handler_) return true;
  Progress progress;
  bool busy = !transfers_.empty();
  for (const auto& blob : blobs_) {
    progress.bytes_done += blob->bytes_done();
    progress.bytes_total += blob->wanted().size;
    busy = busy || blob->state() == BlobDownload::State::kVerifying;
    if (blob->waiting_for_other() && progress.waiting_for.empty()) {
      progress.waiting_for = blob->file();
    }
  }
  if (busy) progress.waiting_for.clear();
  return (*handler_)(progress);
}

}  // namespace atom::hub
