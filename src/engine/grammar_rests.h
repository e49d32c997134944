// Who has to pause because of a slow grammar. How long it takes to say which tokens may come is up
// to who wrote the grammar, and in a step all wait for it: a sequence whose tokens take long has a
// part in few steps, so that it takes about a twentieth of the time of the others. One thread.
#pragma once

#include <chrono>
#include <span>

#include "scheduler/scheduler_output.h"

namespace atom {

class GrammarRests {
 public:
  // A step has taken `duration`. Sets num_steps_to_rest of its sequences by their grammar_work.
  void note(std::chrono::nanoseconds duration, std::span<SequenceOutput> sequences);

 private:
  std::chrono::nanoseconds usual_step_{0};  // how long steps take without grammars; 0: not known
};

}  // namespace atom
