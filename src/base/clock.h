// The clock of everything that is measured or timed: it never goes back.
#pragma once

#include <chrono>

namespace atom {

// The steady clock's time; only differences mean something.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace atom
