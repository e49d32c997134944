// Downloads blobs over several connections at once: files one after the other, the segments of each
// side by side. Belongs to one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/blob_download.h"
#include "hub/http_client.h"
#include "hub/hub_options.h"
#include "hub/model_name.h"

namespace atom::hub {

class SegmentTransfer;

struct DownloadCounts {
  int num_files = 0;  // that came from the network
  uint64_t num_bytes = 0;
};

class DownloadLoop {
 public:
  // All arguments outlive this object. `handler` may be null.
  DownloadLoop(HttpClient* client,
               const CacheFolder& cache,
               const HubOptions& options,
               const ModelName& model,
               const std::string& commit,
               const ProgressHandler* handler);
  ~DownloadLoop();

  // Returns when the snapshot has all of them. After an error what is complete stays, and what is
  // not is resumed the next time.
  Status run(const std::vector<WantedBlob>& blobs);

  const DownloadCounts& counts() const { return counts_; }  // of all run() calls

 private:
  using Clock = BlobDownload::Clock;

  Status check_space() const;
  Status advance_all();
  void start_transfer(BlobDownload* blob, size_t segment);
  void cancel_transfers_of(const BlobDownload* blob);
  Status settle(const HttpOutcome& outcome);
  Status settle_failure(const SegmentTransfer& transfer, HttpOutcome outcome);
  bool all_done() const;
  int milliseconds_to_wait() const;
  bool report() const;

  HttpClient* const client_;
  const CacheFolder& cache_;
  const HubOptions& options_;
  const ModelName& model_;
  const std::string& commit_;
  const ProgressHandler* const handler_;

  std::vector<std::unique_ptr<BlobDownload>> blobs_;
  std::map<int64_t, std::unique_ptr<SegmentTransfer>> transfers_;  // by request
  Clock::time_point paused_until_{};                               // by a server's Retry-After
  DownloadCounts counts_;
};

}  // namespace atom::hub
