// What the processor and the process's limits offer, asked once.
#pragma once

#include <string>

namespace atom {

// Instruction sets that kernels are written for, each including the ones before it.
enum class CpuIsa {
  kScalar,  // x86-64-v2
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // AVX-512 F/BW/DQ/VL with BF16, VBMI and VNNI
  kAmx,     // tiles of bfloat16 and INT8, which the kernel has to admit
};

const char* cpu_isa_name(CpuIsa isa);

// The best set this processor has and ATOM_CPU_ISA admits.
CpuIsa cpu_isa();

// Made by Intel: other vendors' processors fetch memory ahead in other ways.
bool is_intel_cpu();

// Physical cores this process may run on: its affinity mask and cgroup quota considered,
// hyperthread siblings counted once. At least 1.
int num_usable_cores();

// "AMD EPYC ..." from /proc/cpuinfo.
std::string cpu_model_name();

}  // namespace atom
