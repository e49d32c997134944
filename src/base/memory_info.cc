#include "base/memory_info.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace atom {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A number in a one-line file; kUnlimited when the file is absent or says "max".
int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

// File cache that the kernel gives back before it runs out counts as available.
int64_t cgroup_available() {
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  if (limit == kUnlimited) return kUnlimited;
  int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (used == kUnlimited) return kUnlimited;
  std::ifstream stat("/sys/fs/cgroup/memory.stat");
  std::string key;
  int64_t value = 0;
  while (stat >> key >> value) {
    if (key == "inactive_file") used -= value;
  }
  return std::max<int64_t>(0, limit - used);
}

int64_t system_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

int64_t available_memory() {
  return std::min(system_available(), cgroup_available());
}

}  // namespace atom
