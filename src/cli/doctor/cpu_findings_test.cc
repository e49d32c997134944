#include "cli/doctor/cpu_findings.h"

#include <gtest/gtest.h>

#include "cli/doctor/fake_system.h"

namespace atom::cli::doctor {
namespace {

CpuFacts good_cpu_facts() {
  CpuFacts facts;
  facts.model = "Some CPU";
  facts.flags = "fpu avx avx2 fma avx512f avx512vbmi avx512_bf16 avx512_vnni";
  facts.num_online = 8;
  facts.num_admitted = 8;
  facts.num_usable_cores = 4;
  facts.isa = CpuIsa::kAvx512;
  return facts;
}

TEST(CpuFindings, AGoodMachineIsOk) {
  const Findings findings = judge_cpu(good_cpu_facts());
  ASSERT_EQ(findings.size(), 5u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.name;
    EXPECT_TRUE(finding.advice.empty()) << finding.name;
  }
  EXPECT_EQ(find(findings, "instruction sets").value,
            "avx avx2 fma avx512f avx512vbmi avx512_vnni avx512_bf16");
  EXPECT_EQ(find(findings, "kernels").value, "avx512");
}

TEST(CpuFindings, NotesWhatCostsSpeed) {
  CpuFacts facts = good_cpu_facts();
  facts.isa = CpuIsa::kScalar;
  facts.flags = "";
  EXPECT_EQ(find(judge_cpu(facts), "kernels").severity, Severity::kNote);

  facts = good_cpu_facts();
  facts.isa = CpuIsa::kAvx2;
  EXPECT_NE(find(judge_cpu(facts), "kernels").advice.find("BF16"), std::string::npos);

  facts = good_cpu_facts();
  facts.op_variant = "linear=reference";
  EXPECT_NE(find(judge_cpu(facts), "kernels").value.find("linear=reference"), std::string::npos);
  EXPECT_EQ(find(judge_cpu(facts), "kernels").severity, Severity::kNote);

  facts = good_cpu_facts();
  facts.num_numa_nodes = 2;
  EXPECT_NE(find(judge_cpu(facts), "NUMA nodes").advice.find("numactl"), std::string::npos);
}

TEST(CpuFindings, NotesLimitsOfCores) {
  CpuFacts facts = good_cpu_facts();
  facts.num_admitted = 4;
  EXPECT_NE(find(judge_cpu(facts), "cores").advice.find("affinity"), std::string::npos);

  facts = good_cpu_facts();
  facts.cgroup_v1_cores = 1.5;
  EXPECT_NE(find(judge_cpu(facts), "cores").advice.find("--num-threads 1"), std::string::npos);

  facts = good_cpu_facts();
  facts.num_threads = 8;
  EXPECT_NE(find(judge_cpu(facts), "cores").advice.find("ATOM_NUM_THREADS"), std::string::npos);
  facts.num_threads = 4;
  EXPECT_EQ(find(judge_cpu(facts), "cores").severity, Severity::kOk);
}

TEST(CpuFindings, ReadsTheMachine) {
  const FakeSystem system({
      {"/proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: avx2 amx_bf16\n\n"},
      {"/sys/fs/cgroup/cpu.max", "150000 100000\n"},
      {"/sys/devices/system/node/node0/cpulist", "0"},
      {"/sys/devices/system/node/node1/cpulist", "1"},
      {"/sys/devices/system/node/online", "0-1"},
  });
  const CpuFacts facts = read_cpu_facts(system.files());
  EXPECT_EQ(facts.model, "Fast CPU");
  EXPECT_EQ(facts.flags, "avx2 amx_bf16");
  EXPECT_EQ(facts.cgroup_v2_cores, 1.5);
  EXPECT_EQ(facts.cgroup_v1_cores, 0);
  EXPECT_EQ(facts.num_numa_nodes, 2);
  EXPECT_GE(facts.num_usable_cores, 1);
  EXPECT_GE(facts.num_admitted, 1);
}

TEST(CpuFindings, AnEmptyMachineIsNoMistake) {
  const FakeSystem system({{"/sys/fs/cgroup/cpu.max", "max 100000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  const CpuFacts facts = read_cpu_facts(system.files());
  EXPECT_EQ(facts.cgroup_v2_cores, 0);
  EXPECT_EQ(facts.cgroup_v1_cores, 0);
  EXPECT_EQ(facts.num_numa_nodes, 1);
  EXPECT_EQ(find(judge_cpu(facts), "processor").value, "unknown");
}

}  // namespace
}  // namespace atom::cli::doctor
