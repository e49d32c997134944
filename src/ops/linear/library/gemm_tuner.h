// Finds out which algorithm of the GPU's matrix multiplication library is fastest for the calls of
// linear() that an engine makes: it watches steps of the engine, and times the algorithms that the
// library proposes for each kind of call on the very weights, several layers in turn, so that none
// is in a cache. A file remembers the answers. Of calls with a fixed order of sums (GemmKey) it
// admits only algorithms that give the same bits as the one for all of them.
//
// Sums are added in an order that depends on the algorithm. With the file, runs on one kind of card
// use the same ones; without it a close race may end otherwise the next time, and with it the last
// bits of results.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tensor/stream.h"

namespace atom::ops {

struct GemmTuning {
  int num_measured = 0;    // kinds of calls
  int num_remembered = 0;  // by the file
  int num_followed = 0;    // that another card of this process chose
  int num_changed = 0;     // that use another algorithm than the library's first
  int num_left = 0;        // that the time did not suffice for: the library's own choice
};

// On one thread, while nothing else uses the stream's device.
class GemmTuner {
 public:
  // `cache_folder` holds the file; empty: nothing is remembered. `max_seconds` limits what is
  // measured. `stream` outlives the tuner.
  GemmTuner(const Stream& stream, const std::string& cache_folder, double max_seconds);
  ~GemmTuner();
  GemmTuner(const GemmTuner&) = delete;
  GemmTuner& operator=(const GemmTuner&) = delete;

  // `step` enqueues work on the stream, whose memory is left as it is until this returns. What it
  // leaves there is overwritten.
  void tune(const std::function<void()>& step);

  // Writes the file if there is something new.
  void save();

  const GemmTuning& result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atom::ops
