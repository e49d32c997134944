#include "base/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace atom {
namespace {

constexpr int kFirstPrivateFd = 16;  // above all that the child's own are moved to
constexpr int kExitNotExecuted = 127;
// Fields of /proc/PID/stat, counted from the state behind the name.
constexpr size_t kFlagsField = 6;
constexpr size_t kExitStatusField = 49;
constexpr unsigned long kExitingFlag = 4;  // PF_EXITING

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// Both ends close on exec and are out of the way of the child's standard descriptors.
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return resource_exhausted("cannot make a pipe: {}", std::strerror(errno));
  }
  const FileDescriptor read(ends[0]);
  const FileDescriptor write(ends[1]);
  Pipe pipe{FileDescriptor(::fcntl(read.get(), F_DUPFD_CLOEXEC, kFirstPrivateFd)),
            FileDescriptor(::fcntl(write.get(), F_DUPFD_CLOEXEC, kFirstPrivateFd))};
  if (!pipe.read.valid() || !pipe.write.valid()) {
    return resource_exhausted("cannot make a pipe: {}", std::strerror(errno));
  }
  return pipe;
}

// Whether the variable that `entry` ("NAME=value") sets is to be known to this process alone.
bool is_secret(std::string_view entry) {
  std::string name(entry.substr(0, entry.find('=')));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  for (const std::string_view part : {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return name.ends_with("_KEY") || name.ends_with("APIKEY") ||
         name.find("_KEY_") != std::string::npos;
}

std::vector<char*> environment_without_secrets() {
  std::vector<char*> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_secret(*entry)) entries.push_back(*entry);
  }
  entries.push_back(nullptr);
  return entries;
}

struct ExecPlan {
  const char* executable;
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  int lifeline;
  int error;  // takes errno when the execution fails; closes when it succeeds
};

void reset_signals() {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool ignored = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);  // fails for SIGKILL and its like, which need nothing
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs in the child, in the parent's memory: nothing but system calls.
[[noreturn]] void execute(const ExecPlan& plan) {
  reset_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A parent that was gone before that is not reported.
  if (::getppid() != plan.parent) ::_exit(kExitNotExecuted);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (::dup2(STDERR_FILENO, STDOUT_FILENO) < 0 && null >= 0) ::dup2(null, STDOUT_FILENO);
  ::dup2(plan.lifeline, ChildProcess::kLifeline);
  // Also what a library opened without O_CLOEXEC.
  ::syscall(SYS_close_range, ChildProcess::kLifeline + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(plan.executable, plan.arguments, plan.environment);
  const int error = errno;
  (void)!::write(plan.error, &error, sizeof error);
  ::_exit(kExitNotExecuted);
}

// In a function of its own: vfork returns twice, and must not find changed locals.
pid_t fork_and_execute(const ExecPlan& plan) {
  const pid_t pid = ::vfork();
  if (pid == 0) execute(plan);
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(pid_t pid, FileDescriptor lifeline)
    : pid_(pid),
      lifeline_(std::move(lifeline)),
      exit_fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      reaped_(std::exchange(other.reaped_, true)),
      wait_status_(other.wait_status_),
      lifeline_(std::move(other.lifeline_)),
      exit_fd_(std::move(other.exit_fd_)) {}

Result<ChildProcess> ChildProcess::start(const std::string& executable,
                                         const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ASSIGN_OR_RETURN(Pipe lifeline, make_pipe());
  ASSIGN_OR_RETURN(Pipe error, make_pipe());
  const std::vector<char*> environment = environment_without_secrets();
  const ExecPlan plan{executable.c_str(),
                      argv.data(),
                      environment.data(),
                      ::getpid(),
                      lifeline.read.get(),
                      error.write.get()};
  // A handler of ours must not run in the child before it is reset.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork_and_execute(plan);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return resource_exhausted("cannot start {}: {}", executable, std::strerror(fork_error));
  }
  ChildProcess child(pid, std::move(lifeline.write));
  error.write.reset();
  int exec_error = 0;
  ssize_t got = 0;
  do {
    got = ::read(error.read.get(), &exec_error, sizeof exec_error);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return not_found("cannot execute {}: {}", executable, std::strerror(exec_error));
  return child;
}

ChildProcess::~ChildProcess() {
  wait_for_good();
}

void ChildProcess::wait_for_good() {
  if (reaped_) return;
  kill();
  while (!wait(std::chrono::seconds(1))) {
  }
}

void ChildProcess::kill() const {
  if (!reaped_) ::kill(pid_, SIGKILL);
}

bool ChildProcess::is_dying() {
  if (reaped_) return true;
  const FileDescriptor file(
      ::open(fmt::format("/proc/{}/stat", pid_).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  if (!file.valid() || ::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  // The fields after the name, which may hold anything.
  const char* after_name = std::strrchr(text.data(), ')');
  if (after_name == nullptr) return false;
  std::istringstream stream(after_name + 1);
  const std::vector<std::string> fields{std::istream_iterator<std::string>(stream), {}};
  if (fields.size() <= kExitStatusField) return false;
  const unsigned long flags = std::strtoul(fields[kFlagsField].c_str(), nullptr, 10);
  const bool is_zombie = fields[0] == "Z" || fields[0] == "X";
  if (!is_zombie && (flags & kExitingFlag) == 0) return false;
  wait_status_ = std::atoi(fields[kExitStatusField].c_str());
  return true;
}

bool ChildProcess::reap() {
  if (reaped_) return true;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  wait_status_ = got == pid_ ? std::optional(status) : std::nullopt;
  reaped_ = true;
  lifeline_.reset();
  exit_fd_.reset();
  return true;
}

bool ChildProcess::wait(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!reap()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    if (exit_fd_.valid()) {
      pollfd ended{exit_fd_.get(), POLLIN, 0};
      ::poll(&ended, 1, static_cast<int>(left.count()));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

std::string ChildProcess::how_it_ended() const {
  if (!wait_status_) return "its exit status is unknown";
  if (WIFSIGNALED(*wait_status_)) {
    const int signal = WTERMSIG(*wait_status_);
    const char* name = ::sigdescr_np(signal);
    return fmt::format("signal {}: {}", signal, name == nullptr ? "unknown" : name);
  }
  return fmt::format("exit code {}", WEXITSTATUS(*wait_status_));
}

bool ChildProcess::exited() const {
  return wait_status_ && WIFEXITED(*wait_status_);
}

bool exit_with_parent(int lifeline) {
  struct stat info {};
  if (::fstat(lifeline, &info) != 0 || !S_ISFIFO(info.st_mode)) return false;
  ::fcntl(lifeline, F_SETFD, FD_CLOEXEC);
  std::thread([lifeline] {
    char byte = 0;
    for (;;) {
      const ssize_t got = ::read(lifeline, &byte, 1);
      if (got == 0 || (got < 0 && errno != EINTR)) ::_exit(1);
    }
  }).detach();
  return true;
}

}  // namespace atom
