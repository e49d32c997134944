// What a download from a model hub is given: where the hub and the cache are, and the limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace atom::hub {

// Which of a model's files are wanted.
enum class FileSet {
  kAll,             // what it takes to run the model
  kWithoutWeights,  // configuration and tokenizer only
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token;         // empty: none
  std::string cache_folder;  // holds models--ORG--NAME; empty: there is none
  bool offline = false;      // use what the cache has
  std::string revision;      // branch, tag or commit; empty: the one in the name, else main
  FileSet files = FileSet::kAll;

  // Wait until a file is on the disk before it becomes visible.
  bool durable = true;
  int max_connections = 8;
  uint64_t segment_size = uint64_t{32} << 20;   // bytes of a file that one request asks for
  int stall_seconds = 30;                       // a connection that is silent so long is given up
  int max_attempts = 5;                         // of one request, without progress between them
  std::chrono::milliseconds retry_delay{1000};  // before the second attempt; doubles, up to 30 s
  std::chrono::seconds max_retry_after{300};    // longest wait that a server may ask for

  // Bytes that may still be written to the file system of a folder.
  std::function<Result<uint64_t>(const std::string& folder)> available_bytes;
};

// From the environment (base/env.h). An error when the token could be none.
Result<HubOptions> options_from_environment();

// What `folder`'s file system has free for this user.
Result<uint64_t> available_bytes_of(const std::string& folder);

struct Progress {
  uint64_t bytes_done = 0;  // of bytes_total; may fall when a file was wrong and starts again
  uint64_t bytes_total = 0;
  std::string waiting_for;  // a file that another process downloads, when nothing else is to do
};

// Called often, from the thread that pulls. False stops the pull with kAborted; what is there stays
// and is resumed the next time.
using ProgressHandler = std::function<bool(const Progress&)>;

}  // namespace atom::hub
