// The processor: what it has, what of it this process may use, and which kernels follow from that.
#pragma once

#include <string>

#include "base/cpu_info.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace atom::cli::doctor {

struct CpuFacts {
  std::string model;
  std::string flags;           // of /proc/cpuinfo, separated by spaces
  int num_online = 0;          // hardware threads of the machine
  int num_admitted = 0;        // hardware threads in the affinity mask
  int num_usable_cores = 0;    // physical cores atom takes by itself (base/cpu_info.h)
  double cgroup_v2_cores = 0;  // cores' worth of time; 0: no limit
  double cgroup_v1_cores = 0;
  int num_numa_nodes = 1;
  CpuIsa isa = CpuIsa::kScalar;  // the best that kernels will use
  // The environment's wishes; empty or 0: none.
  std::string wanted_isa;
  std::string op_variant;
  int num_threads = 0;
};

CpuFacts read_cpu_facts(const SystemFiles& files);
Findings judge_cpu(const CpuFacts& facts);

}  // namespace atom::cli::doctor
