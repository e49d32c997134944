#include "cli/interrupts.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace atom::cli {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

Interrupts::Interrupts(std::initializer_list<int> signals) : signals_(set_of(signals)) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  fd_ = signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC);
}

Interrupts::~Interrupts() {
  close(fd_);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

bool Interrupts::take() {
  bool taken = false;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) taken = true;
  return taken;
}

LetInterruptsThrough::LetInterruptsThrough(std::initializer_list<int> signals)
    : receiver_([this, set = set_of(signals)] {
        pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
        done_.wait(false);
      }) {}

LetInterruptsThrough::~LetInterruptsThrough() {
  done_ = true;
  done_.notify_one();
  receiver_.join();
}

}  // namespace atom::cli
