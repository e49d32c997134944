// What the kernel says of this process, read anew at each call.
#pragma once

#include <cstdint>
#include <optional>

namespace atom::server {

struct ProcessStats {
  double start_time = 0;         // seconds since 1970
  double cpu_seconds = 0;        // user and system
  uint64_t virtual_memory = 0;   // bytes
  uint64_t resident_memory = 0;  // bytes
  uint64_t num_threads = 0;
  uint64_t num_open_fds = 0;
  uint64_t max_open_fds = 0;  // the soft limit
};

// Nothing where /proc is not to be read.
std::optional<ProcessStats> read_process_stats();

}  // namespace atom::server
