#include "cli/doctor/cpu_findings.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/env.h"

namespace atom::cli::doctor {
namespace {

constexpr const char* kCpuSection = "CPU";

bool has_flag(const CpuFacts& facts, std::string_view flag) {
  std::istringstream words(facts.flags);
  for (std::string word; words >> word;) {
    if (word == flag) return true;
  }
  return false;
}

// "100000 50000" or "max 100000"
double cgroup_v2_cores(const SystemFiles& files) {
  std::istringstream fields(files.read("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  double period = 0;
  if (!(fields >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::atof(quota.c_str()) / period;
}

double cgroup_v1_cores(const SystemFiles& files) {
  const auto quota = files.read_integer("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = files.read_integer("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int count_numa_nodes(const SystemFiles& files) {
  int count = 0;
  for (const std::string& name : files.list("/sys/devices/system/node")) {
    if (name.size() > 4 && name.starts_with("node") && name[4] >= '0' && name[4] <= '9') ++count;
  }
  return count == 0 ? 1 : count;
}

int count_admitted() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

Finding judge_cores(const CpuFacts& facts) {
  Finding finding{kCpuSection, "cores", Severity::kOk, "", ""};
  finding.value =
      fmt::format("{} physical core(s) to compute on; {} of {} hardware threads admitted",
                  facts.num_usable_cores,
                  facts.num_admitted,
                  facts.num_online);
  if (facts.cgroup_v2_cores > 0) {
    finding.value += fmt::format("; the cgroup grants {:.1f} cores", facts.cgroup_v2_cores);
  }
  if (facts.num_threads > 0) {
    finding.value += fmt::format("; ATOM_NUM_THREADS={}", facts.num_threads);
  }
  if (facts.num_threads > facts.num_usable_cores) {
    finding.severity = Severity::kNote;
    finding.advice = fmt::format(
        "more threads than physical cores wait for each other: unset ATOM_NUM_THREADS, or set {}",
        facts.num_usable_cores);
  } else if (facts.cgroup_v1_cores > 0 && facts.cgroup_v1_cores < facts.num_usable_cores) {
    finding.severity = Severity::kNote;
    finding.advice =
        fmt::format("cgroup v1 grants {:.1f} cores, which atom does not see: pass --num-threads {}",
                    facts.cgroup_v1_cores,
                    std::max(1, static_cast<int>(facts.cgroup_v1_cores)));
  } else if (facts.num_admitted < facts.num_online) {
    finding.severity = Severity::kNote;
    finding.advice = "the affinity mask (taskset, cpuset) leaves out part of the machine";
  }
  return finding;
}

Finding judge_kernels(const CpuFacts& facts) {
  Finding finding{kCpuSection, "kernels", Severity::kOk, cpu_isa_name(facts.isa), ""};
  if (!facts.op_variant.empty()) finding.value += ", ATOM_OP_VARIANT=" + facts.op_variant;
  if (!facts.wanted_isa.empty()) finding.value += ", ATOM_CPU_ISA=" + facts.wanted_isa;
  if (!facts.op_variant.empty() || !facts.wanted_isa.empty()) {
    finding.severity = Severity::kNote;
    finding.advice = "the environment chooses kernels: unset the variable for the fastest";
  } else if (facts.isa == CpuIsa::kScalar) {
    finding.severity = Severity::kNote;
    finding.advice = "without AVX2 and FMA only the plain kernels run, which are many times slower";
  } else if (facts.isa == CpuIsa::kAvx2 && has_flag(facts, "avx512f")) {
    finding.severity = Severity::kNote;
    finding.advice = "this AVX-512 lacks BF16, VBMI or VNNI, so the AVX2 kernels are used";
  } else if (facts.isa < CpuIsa::kAmx && has_flag(facts, "amx_bf16")) {
    finding.value += " (the system does not admit AMX)";
  }
  return finding;
}

}  // namespace

CpuFacts read_cpu_facts(const SystemFiles& files) {
  CpuFacts facts;
  facts.model = files.read_field("/proc/cpuinfo", "model name");
  facts.flags = files.read_field("/proc/cpuinfo", "flags");
  facts.num_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.num_admitted = count_admitted();
  facts.num_usable_cores = num_usable_cores();
  facts.cgroup_v2_cores = cgroup_v2_cores(files);
  facts.cgroup_v1_cores = cgroup_v1_cores(files);
  facts.num_numa_nodes = count_numa_nodes(files);
  facts.isa = cpu_isa();
  facts.wanted_isa = env().cpu_isa;
  facts.op_variant = env().op_variant;
  facts.num_threads = env().num_threads;
  return facts;
}

Findings judge_cpu(const CpuFacts& facts) {
  Findings findings;
  findings.push_back(
      {kCpuSection, "processor", Severity::kOk, facts.model.empty() ? "unknown" : facts.model, ""});
  findings.push_back(judge_cores(facts));
  std::string sets;
  for (const char* flag : {"avx",
                           "avx2",
                           "fma",
                           "f16c",
                           "avx512f",
                           "avx512bw",
                           "avx512vl",
                           "avx512vbmi",
                           "avx512_vnni",
                           "avx512_bf16",
                           "avx512_fp16",
                           "amx_bf16",
                           "amx_int8"}) {
    if (has_flag(facts, flag)) sets.append(sets.empty() ? "" : " ").append(flag);
  }
  findings.push_back({kCpuSection,
                      "instruction sets",
                      Severity::kOk,
                      sets.empty() ? "x86-64-v2 alone" : sets,
                      ""});
  findings.push_back(judge_kernels(facts));
  Finding numa{kCpuSection, "NUMA nodes", Severity::kOk, std::to_string(facts.num_numa_nodes), ""};
  if (facts.num_numa_nodes > 1) {
    numa.severity = Severity::kNote;
    numa.advice =
        "weights land on one node: run `numactl --cpunodebind=0 --membind=0 atom ...` on one, or "
        "`numactl --interleave=all atom ...` on all";
  }
  findings.push_back(numa);
  return findings;
}

}  // namespace atom::cli::doctor
