#include "cli/doctor/system_findings.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/human.h"
#include "cli/terminal.h"

namespace atom::cli::doctor {
namespace {

constexpr const char* kSystemSection = "system";
// Sockets of the engine and files of a checkpoint, before the first client.
constexpr uint64_t kLeastOpenFiles = 128;
constexpr uint64_t kEnoughOpenFiles = 8192;
constexpr uint64_t kLittleDisk = uint64_t{20} << 30;

uint64_t limit_value(rlim_t value) {
  return value == RLIM_INFINITY ? UINT64_MAX : value;
}

std::string limit_text(uint64_t value) {
  return value == UINT64_MAX ? "unlimited" : std::to_string(value);
}

// Binding without listening: no client can reach it, and nothing of it stays.
std::string why_not_bindable(uint16_t port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::generic_category().message(errno);
  const int reuse = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Two sockets may bind with SO_REUSEADDR, but only one may listen.
  const bool bound =
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(descriptor, 1) == 0;
  const std::string error = bound ? "" : std::generic_category().message(errno);
  close(descriptor);
  return error;
}

std::string locale_codeset() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return "";
  std::string codeset = nl_langinfo_l(CODESET, locale);
  freelocale(locale);
  return codeset;
}

void read_cache_folder(const std::string& folder, SystemFacts* facts) {
  facts->cache_folder = folder;
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::path existing = folder;
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  if (existing.empty()) existing = ".";
  facts->cache_parent = existing.string();
  struct statvfs usage {};
  if (statvfs(existing.c_str(), &usage) == 0) {
    facts->cache_free = uint64_t{usage.f_bavail} * usage.f_frsize;
  }
  facts->cache_writable = access(existing.c_str(), W_OK | X_OK) == 0;
}

std::string unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

Finding judge_open_files(const SystemFacts& facts) {
  Finding finding{kSystemSection, "open files", Severity::kOk, "", ""};
  finding.value = fmt::format("at most {} ({} if asked for)",
                              limit_text(facts.open_files),
                              limit_text(facts.open_files_hard));
  if (facts.open_files < kEnoughOpenFiles) {
    finding.severity = facts.open_files < kLeastOpenFiles ? Severity::kProblem : Severity::kNote;
    finding.advice =
        "each client takes one: `ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit";
  }
  return finding;
}

Finding judge_disk(const SystemFacts& facts) {
  Finding finding{kSystemSection, "model cache", Severity::kOk, "", ""};
  if (facts.cache_folder.empty()) {
    finding.value = "no folder";
    finding.severity = Severity::kNote;
    finding.advice = "models cannot be downloaded: set HF_HUB_CACHE, HF_HOME or HOME";
    return finding;
  }
  finding.value = fmt::format(
      "{}: {} free", facts.cache_folder, human_bytes(static_cast<int64_t>(facts.cache_free)));
  if (!facts.cache_writable) {
    finding.severity = Severity::kNote;
    finding.advice = facts.cache_parent +
                     " cannot be written: models cannot be downloaded; set HF_HUB_CACHE to a "
                     "folder that can";
  } else if (facts.cache_free < kLittleDisk) {
    finding.severity = Severity::kNote;
    finding.advice =
        "a model of 8 billion parameters takes 16 GiB: set HF_HUB_CACHE to a folder "
        "on a larger disk";
  }
  return finding;
}

Finding judge_port(const SystemFacts& facts) {
  Finding finding{kSystemSection, fmt::format("port {}", facts.port), Severity::kOk, "free", ""};
  if (!facts.port_error.empty()) {
    finding.severity = Severity::kNote;
    finding.value = facts.port_error;
    finding.advice = facts.port < 1024 ? "serve on another: --port 8000"
                                       : fmt::format("serve on another: --port {}", facts.port + 1);
  }
  return finding;
}

}  // namespace

SystemFacts read_system_facts(const SystemFiles& files,
                              uint16_t port,
                              const std::string& cache_folder) {
  SystemFacts facts;
  facts.distribution = unquoted(files.read_field("/etc/os-release", "PRETTY_NAME="));
  utsname name{};
  if (uname(&name) == 0) facts.kernel = fmt::format("{} {}", name.sysname, name.release);
  facts.in_container = files.exists("/.dockerenv") || files.exists("/run/.containerenv");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = limit_value(limit.rlim_cur);
    facts.open_files_hard = limit_value(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_memory = limit_value(limit.rlim_cur);
  read_cache_folder(cache_folder, &facts);
  facts.tmp_writable = access("/tmp", W_OK | X_OK) == 0;
  facts.port = port;
  facts.port_error = why_not_bindable(port);
  facts.codeset = locale_codeset();
  facts.is_terminal = cli::is_terminal(stdout);
  facts.terminal_width = cli::terminal_width(stdout);
  return facts;
}

Findings judge_system(const SystemFacts& facts) {
  Findings findings;
  findings.push_back(
      {kSystemSection,
       "operating system",
       Severity::kOk,
       fmt::format(
           "{}{}{}", facts.distribution, facts.distribution.empty() ? "" : ", ", facts.kernel) +
           (facts.in_container ? ", in a container" : ""),
       ""});
  findings.push_back(judge_open_files(facts));
  findings.push_back({kSystemSection,
                      "locked memory",
                      Severity::kOk,
                      facts.locked_memory == UINT64_MAX
                          ? "unlimited"
                          : "at most " + human_bytes(static_cast<int64_t>(facts.locked_memory)),
                      ""});
  findings.push_back(judge_disk(facts));
  Finding temporary{kSystemSection, "/tmp", Severity::kOk, "can be written", ""};
  if (!facts.tmp_writable) {
    temporary.severity = Severity::kNote;
    temporary.value = "cannot be written";
    temporary.advice = "the engine's sockets are made there when XDG_RUNTIME_DIR names no folder";
  }
  findings.push_back(temporary);
  findings.push_back(judge_port(facts));
  Finding locale{kSystemSection,
                 "locale",
                 Severity::kOk,
                 facts.codeset.empty() ? "unknown" : facts.codeset,
                 ""};
  if (facts.codeset != "UTF-8") {
    locale.severity = Severity::kNote;
    locale.advice = "answers are UTF-8 and may show wrongly: export LC_ALL=C.UTF-8";
  }
  findings.push_back(locale);
  findings.push_back({kSystemSection,
                      "terminal",
                      Severity::kOk,
                      facts.is_terminal ? fmt::format("{} columns", facts.terminal_width)
                                        : "standard output is none",
                      ""});
  return findings;
}

}  // namespace atom::cli::doctor
