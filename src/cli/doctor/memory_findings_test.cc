#include "cli/doctor/memory_findings.h"

#include <gtest/gtest.h>

#include "cli/doctor/fake_system.h"

namespace atom::cli::doctor {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

MemoryFacts good_memory_facts() {
  MemoryFacts facts;
  facts.total = 64 * kGiB;
  facts.available = 60 * kGiB;
  facts.transparent_huge_pages = "madvise";
  return facts;
}

TEST(MemoryFindings, AGoodMachineIsOk) {
  for (const Finding& finding : judge_memory(good_memory_facts())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.name;
    EXPECT_TRUE(finding.advice.empty()) << finding.name;
  }
  EXPECT_EQ(find(judge_memory(good_memory_facts()), "memory").value,
            "60.0 GiB available of 64.0 GiB");
}

TEST(MemoryFindings, TooLittleIsAProblem) {
  MemoryFacts facts = good_memory_facts();
  facts.available = 100 << 20;
  EXPECT_EQ(find(judge_memory(facts), "memory").severity, Severity::kProblem);
}

TEST(MemoryFindings, NotesWhatMayHurt) {
  MemoryFacts facts = good_memory_facts();
  facts.cgroup_v1_limit = 8 * kGiB;
  facts.swap_total = 8 * kGiB;
  facts.swap_free = 4 * kGiB;
  facts.transparent_huge_pages = "never";
  facts.overcommit = 2;
  const Findings findings = judge_memory(facts);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kNote) << finding.name;
    EXPECT_FALSE(finding.advice.empty()) << finding.name;
  }
  EXPECT_EQ(find(findings, "swap").value, "8.0 GiB, 4.0 GiB used");
  EXPECT_NE(find(findings, "memory").advice.find("8.0 GiB"), std::string::npos);
}

TEST(MemoryFindings, SwapThatIsNotUsedIsOk) {
  MemoryFacts facts = good_memory_facts();
  facts.swap_total = facts.swap_free = 8 * kGiB;
  EXPECT_EQ(find(judge_memory(facts), "swap").severity, Severity::kOk);
}

TEST(MemoryFindings, ReadsTheMachine) {
  const FakeSystem system({
      {"/proc/meminfo",
       "MemTotal:       1000 kB\nSwapTotal:  300 kB\nSwapFree:  200 kB\nSwapCached: 9 kB\n"
       "HugePages_Total:       4\nHugepagesize:       2048 kB\n"},
      {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
      {"/proc/sys/vm/overcommit_memory", "1\n"},
      {"/sys/fs/cgroup/memory.max", "max\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
  });
  const MemoryFacts facts = read_memory_facts(system.files());
  EXPECT_EQ(facts.total, 1000 * 1024);
  EXPECT_EQ(facts.swap_total, 300 * 1024);
  EXPECT_EQ(facts.swap_free, 200 * 1024);
  EXPECT_EQ(facts.huge_page_pool, 4 * 2048 * 1024);
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_EQ(facts.overcommit, 1);
  EXPECT_EQ(facts.cgroup_v2_limit, 0);
  EXPECT_EQ(facts.cgroup_v1_limit, 0);
  EXPECT_GT(facts.available, 0);
}

}  // namespace
}  // namespace atom::cli::doctor
