// Ctrl-C and its like as something to ask for, so that it can stop an answer instead of the
// program.
#pragma once

#include <signal.h>

#include <atomic>
#include <initializer_list>
#include <thread>

namespace atom::cli {

// While it lives, the signals wait here to be taken. Blocks them for the calling thread and those
// that it starts later, so it is made before the engine is.
class Interrupts {
 public:
  explicit Interrupts(std::initializer_list<int> signals = {SIGINT});
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int fd() const { return fd_; }  // readable when there is one, for poll()
  bool take();                    // whether there were some; they are gone then

 private:
  const sigset_t signals_;
  int fd_ = -1;
};

// Inside an Interrupts, lets the signals do what they did before: for work that cannot ask.
class LetInterruptsThrough {
 public:
  explicit LetInterruptsThrough(std::initializer_list<int> signals = {SIGINT});
  ~LetInterruptsThrough();
  LetInterruptsThrough(const LetInterruptsThrough&) = delete;
  LetInterruptsThrough& operator=(const LetInterruptsThrough&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread receiver_;  // the one thread that does not block the signal
};

}  // namespace atom::cli
