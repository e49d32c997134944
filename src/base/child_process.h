// A child process that cannot outlive this one: the kernel kills it when the thread that started it
// ends, however that comes about, and it holds a pipe whose end of file tells it the same.
//
// It starts with standard input from /dev/null, standard output on this process's standard error,
// no variable of the environment that is named like a secret (HF_TOKEN, ATOM_API_KEY), no signal
// blocked, SIGINT, SIGTERM and SIGHUP ignored (what a terminal or a service manager sends
// to the whole group is the parent's to handle), every other signal at its default, and no file of
// ours open but those and the lifeline. Nothing forks without exec, so it is safe among threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace atom {

// For one thread at a time, but for kill().
class ChildProcess {
 public:
  // The child's descriptor of the pipe that ends with the parent.
  static constexpr int kLifeline = 3;

  // Starts `executable` with argv = `arguments`. The calling thread has to live as long as the
  // child may. An error when it cannot be executed.
  static Result<ChildProcess> start(const std::string& executable,
                                    const std::vector<std::string>& arguments);
  // Kills and reaps it when it has not been reaped.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) = delete;

  pid_t pid() const { return pid_; }
  // Readable once it has ended, for poll(); -1 on a kernel without such descriptors.
  int exit_fd() const { return exit_fd_.get(); }

  void kill() const;
  // Whether it is on its way out or gone, though it cannot be reaped yet: giving the memory of a
  // large process back takes the kernel seconds.
  bool is_dying();
  // Reaps it when it has ended within `timeout`.
  bool wait(std::chrono::milliseconds timeout);
  // Kills it when it still runs, and reaps it.
  void wait_for_good();
  // "signal 9: Killed", "exit code 3"; once it is reaped or dying.
  std::string how_it_ended() const;
  // It called exit(), and no signal ended it; likewise.
  bool exited() const;

 private:
  ChildProcess(pid_t pid, FileDescriptor lifeline);
  bool reap();

  pid_t pid_ = -1;  // until reaped its number is not given to another process
  bool reaped_ = false;
  std::optional<int> wait_status_;  // none also when another part of the program reaped it
  FileDescriptor lifeline_;         // the writing end; nothing is ever written
  FileDescriptor exit_fd_;
};

// In the child: ends this process at once when the parent has ended. False when `lifeline` is not a
// pipe.
bool exit_with_parent(int lifeline);

}  // namespace atom
