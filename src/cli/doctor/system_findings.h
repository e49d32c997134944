// What surrounds the process: limits, disk, network, terminal, and the versions of its parts.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace atom::cli::doctor {

struct SystemFacts {
  std::string distribution;  // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;        // "Linux 6.1.0"
  bool in_container = false;
  // RLIM_INFINITY counts as UINT64_MAX.
  uint64_t open_files = 0;  // soft limit
  uint64_t open_files_hard = 0;
  uint64_t locked_memory = 0;  // bytes
  std::string cache_folder;    // of downloaded models; empty: not known
  std::string cache_parent;    // the nearest folder above that exists
  uint64_t cache_free = 0;     // bytes
  bool cache_writable = false;
  bool tmp_writable = false;  // /tmp
  uint16_t port = 0;
  std::string port_error;  // why it cannot be listened on; empty: it can
  std::string codeset;     // of the locale: "UTF-8"
  bool is_terminal = false;
  int terminal_width = 0;
};

// Listens on 127.0.0.1:port for a moment. `cache_folder`: where models are downloaded to.
SystemFacts read_system_facts(const SystemFiles& files,
                              uint16_t port,
                              const std::string& cache_folder);
Findings judge_system(const SystemFacts& facts);

// Versions of atom and of the libraries it was built with.
Findings list_versions();

}  // namespace atom::cli::doctor
