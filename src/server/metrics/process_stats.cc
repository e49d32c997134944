#include "server/metrics/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

namespace atom::server {
namespace {

// Seconds since 1970 at which the system started; 0 when unknown.
double boot_time() {
  std::ifstream file("/proc/stat");
  std::string key;
  double value = 0;
  while (file >> key) {
    if (key == "btime" && file >> value) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

std::optional<uint64_t> count_open_fds() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return std::nullopt;
  uint64_t count = 0;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count - 1;  // without the folder's own
}

}  // namespace

std::optional<ProcessStats> read_process_stats() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The second field is the program's name in parentheses and may hold anything.
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  // Fields are numbered from 1, as in proc(5); the third comes first here.
  std::istringstream fields(line.substr(end_of_name + 1));
  std::string value[25];
  for (int field = 3; field <= 24; ++field) fields >> value[field];
  if (!fields) return std::nullopt;

  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto number = [&value](int field) {
    return std::strtoull(value[field].c_str(), nullptr, 10);
  };
  const auto ticks = [&](int field) {
    return static_cast<double>(number(field)) / ticks_per_second;
  };
  const std::optional<uint64_t> num_open_fds = count_open_fds();
  rlimit limit{};
  if (!num_open_fds || getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;

  ProcessStats stats;
  stats.cpu_seconds = ticks(14) + ticks(15);
  stats.num_threads = number(20);
  stats.start_time = boot_time() + ticks(22);
  stats.virtual_memory = number(23);
  stats.resident_memory = number(24) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  stats.num_open_fds = *num_open_fds;
  stats.max_open_fds = limit.rlim_cur;
  return stats;
}

}  // namespace atom::server
