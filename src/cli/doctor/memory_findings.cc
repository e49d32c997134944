#include "cli/doctor/memory_findings.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/human.h"
#include "base/memory_info.h"

namespace atom::cli::doctor {
namespace {

constexpr const char* kMemorySection = "memory";
// Less does not hold the smallest models with a cache.
constexpr int64_t kLeastMemory = int64_t{256} << 20;
// cgroup v1 says "no limit" with a number near 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;

int64_t meminfo_bytes(const SystemFiles& files, const char* key) {
  return std::atoll(files.read_field("/proc/meminfo", key).c_str()) * 1024;
}

// "always [madvise] never" -> "madvise"
std::string bracketed(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + 1, end - begin - 1);
}

Finding judge_available(const MemoryFacts& facts) {
  Finding finding{kMemorySection, "memory", Severity::kOk, "", ""};
  finding.value =
      fmt::format("{} available of {}", human_bytes(facts.available), human_bytes(facts.total));
  if (facts.cgroup_v2_limit > 0) {
    finding.value += fmt::format("; the cgroup's limit is {}", human_bytes(facts.cgroup_v2_limit));
  }
  if (facts.available < kLeastMemory) {
    finding.severity = Severity::kProblem;
    finding.advice = fmt::format("free some: even small models want {}", human_bytes(kLeastMemory));
  } else if (facts.cgroup_v1_limit > 0 && facts.cgroup_v1_limit < facts.total) {
    finding.severity = Severity::kNote;
    finding.advice = fmt::format(
        "cgroup v1 limits memory to {} ({} taken), which atom does not see: choose "
        "--kv-cache-memory so that it holds weights and cache",
        human_bytes(facts.cgroup_v1_limit),
        human_bytes(facts.cgroup_v1_used));
  }
  return finding;
}

Finding judge_swap(const MemoryFacts& facts) {
  Finding finding{kMemorySection, "swap", Severity::kOk, "none", ""};
  if (facts.swap_total == 0) return finding;
  const int64_t used = facts.swap_total - facts.swap_free;
  finding.value = fmt::format("{}, {} used", human_bytes(facts.swap_total), human_bytes(used));
  if (used > facts.swap_total / 10) {
    finding.severity = Severity::kNote;
    finding.advice = "the machine swaps: weights that are swapped out make every step slow";
  }
  return finding;
}

Finding judge_huge_pages(const MemoryFacts& facts) {
  Finding finding{kMemorySection, "huge pages", Severity::kOk, "", ""};
  const bool offered =
      facts.transparent_huge_pages == "always" || facts.transparent_huge_pages == "madvise";
  finding.value =
      "transparent: " + (facts.transparent_huge_pages.empty() ? std::string("not offered")
                                                              : facts.transparent_huge_pages);
  if (facts.huge_page_pool > 0) {
    finding.value +=
        fmt::format("; {} reserved, which atom does not use", human_bytes(facts.huge_page_pool));
  }
  if (!offered) {
    finding.severity = Severity::kNote;
    finding.advice =
        "weights and cache are read faster in huge pages: echo madvise | sudo tee "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

Finding judge_overcommit(const MemoryFacts& facts) {
  Finding finding{kMemorySection, "overcommit", Severity::kOk, "", ""};
  finding.value = facts.overcommit == 0   ? "by the kernel's judgment"
                  : facts.overcommit == 1 ? "always"
                                          : "never";
  if (facts.overcommit == 2) {
    finding.severity = Severity::kNote;
    finding.advice =
        "memory that is mapped but not touched counts: large models may be refused although there "
        "is room (sysctl vm.overcommit_memory)";
  }
  return finding;
}

}  // namespace

MemoryFacts read_memory_facts(const SystemFiles& files) {
  const auto limit = [&files](const char* path) {
    const int64_t value = files.read_integer(path).value_or(0);
    return value > 0 && value < kNoLimit ? value : 0;
  };
  MemoryFacts facts;
  facts.total = meminfo_bytes(files, "MemTotal");
  facts.available = available_memory();
  facts.cgroup_v2_limit = limit("/sys/fs/cgroup/memory.max");
  facts.cgroup_v1_limit = limit("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  facts.cgroup_v1_used = limit("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  facts.swap_total = meminfo_bytes(files, "SwapTotal");
  facts.swap_free = meminfo_bytes(files, "SwapFree");
  facts.huge_page_pool = std::atoll(files.read_field("/proc/meminfo", "HugePages_Total").c_str()) *
                         meminfo_bytes(files, "Hugepagesize");
  facts.transparent_huge_pages =
      bracketed(files.read("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.overcommit = files.read_integer("/proc/sys/vm/overcommit_memory").value_or(0);
  return facts;
}

Findings judge_memory(const MemoryFacts& facts) {
  return {
      judge_available(facts), judge_swap(facts), judge_huge_pages(facts), judge_overcommit(facts)};
}

}  // namespace atom::cli::doctor
