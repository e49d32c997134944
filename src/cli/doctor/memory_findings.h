// Memory: how much, who limits it, and how the kernel hands it out.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace atom::cli::doctor {

// Bytes. 0: no such limit, or not known.
struct MemoryFacts {
  int64_t total = 0;
  int64_t available = 0;  // what atom may take: the least of system and cgroup v2
  int64_t cgroup_v2_limit = 0;
  int64_t cgroup_v1_limit = 0;
  int64_t cgroup_v1_used = 0;
  int64_t swap_total = 0;
  int64_t swap_free = 0;
  int64_t huge_page_pool = 0;          // reserved with vm.nr_hugepages
  std::string transparent_huge_pages;  // "always", "madvise", "never"; empty: not offered
  int64_t overcommit = 0;              // vm.overcommit_memory
};

MemoryFacts read_memory_facts(const SystemFiles& files);
Findings judge_memory(const MemoryFacts& facts);

}  // namespace atom::cli::doctor
