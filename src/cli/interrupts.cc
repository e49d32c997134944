#include "cli/interrupts.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace atom::cli {
namespace {

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Interrupts::~Interrupts() {
  close(fd_);
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool Interrupts::take() {
  bool taken = false;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) taken = true;
  return taken;
}

LetInterruptsThrough::LetInterruptsThrough()
    : receiver_([this] {
        const sigset_t set = interrupt_set();
        pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
        done_.wait(false);
      }) {}

LetInterruptsThrough::~LetInterruptsThrough() {
  done_ = true;
  done_.notify_one();
  receiver_.join();
}

}  // namespace atom::cli
