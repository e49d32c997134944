// For tests: runs the instructions of AMX on a processor or under a kernel that refuses them. What
// the refused instruction would have done is done by a handler of the signal that it raises, with
// eight tiles of the thread that it was raised in.
#pragma once

#include <memory>

namespace atom::ops {

// While it lives. Of instructions those of ops/simd/amx.h; any other still ends the process, and so
// does one whose tiles are not configured for it. One at a time.
class AmxEmulator {
 public:
  AmxEmulator();
  ~AmxEmulator();
  AmxEmulator(const AmxEmulator&) = delete;
  AmxEmulator& operator=(const AmxEmulator&) = delete;

 private:
  struct Handler;  // the one before
  std::unique_ptr<Handler> before_;
};

}  // namespace atom::ops
