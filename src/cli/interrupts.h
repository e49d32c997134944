// Ctrl-C as something to ask for, so that it can stop an answer instead of the program.
#pragma once

#include <atomic>
#include <thread>

namespace atom::cli {

// While it lives, SIGINT waits here to be taken. Blocks the signal for the calling thread and those
// that it starts later, so it is made before the engine is.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int fd() const { return fd_; }  // readable when there is one, for poll()
  bool take();                    // whether there were some; they are gone then

 private:
  int fd_ = -1;
};

// Inside an Interrupts, lets SIGINT do what it did before: for work that cannot ask.
class LetInterruptsThrough {
 public:
  LetInterruptsThrough();
  ~LetInterruptsThrough();
  LetInterruptsThrough(const LetInterruptsThrough&) = delete;
  LetInterruptsThrough& operator=(const LetInterruptsThrough&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread receiver_;  // the one thread that does not block the signal
};

}  // namespace atom::cli
