#include "base/cpu_info.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "base/env.h"
#include "base/log.h"

namespace atom {
namespace {

// Tiles are there and the kernel keeps their 8 KiB for this process's threads, which it does where
// it was asked to.
bool admits_amx() {
  constexpr unsigned kBFloat16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned kAll = kBFloat16 | kTile | kInt8;
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAll) != kAll) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuIsa detect_isa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2")) {
    return CpuIsa::kScalar;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
  if (!avx512) return CpuIsa::kAvx2;
  return admits_amx() ? CpuIsa::kAmx : CpuIsa::kAvx512;
}

CpuIsa admitted_isa() {
  const CpuIsa detected = detect_isa();
  const std::string& wanted = env().cpu_isa;
  if (wanted.empty()) return detected;
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (wanted != cpu_isa_name(isa)) continue;
    if (isa <= detected) return isa;
    log::warning("ATOM_CPU_ISA={}: this processor has only {}", wanted, cpu_isa_name(detected));
    return detected;
  }
  log::warning("ATOM_CPU_ISA='{}' is unknown: use scalar, avx2, avx512 or amx", wanted);
  return detected;
}

// The lowest-numbered hyperthread of the core that `cpu` belongs to.
int core_of(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  int first = cpu;
  file >> first;
  return file ? first : cpu;
}

// Cores' worth of time that cgroup v2 grants, or infinity.
double cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INFINITY;
  return std::atof(quota.c_str()) / period;
}

int count_usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  std::set<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cores.insert(core_of(cpu));
  }
  const double granted = std::min<double>(static_cast<double>(cores.size()), cgroup_cores());
  return std::max(1, static_cast<int>(granted));
}

}  // namespace

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAmx:
      return "amx";
  }
  return "unknown";
}

CpuIsa cpu_isa() {
  static const CpuIsa isa = admitted_isa();
  return isa;
}

bool is_intel_cpu() {
  static const bool is_intel = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
  }();
  return is_intel;
}

int num_usable_cores() {
  static const int cores = count_usable_cores();
  return cores;
}

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace atom
