// How the steps of the head's scheduler come to the other nodes of an engine. Of one thread at each
// end. Where the nodes have failed, what is sent goes nowhere and nothing is received.
#pragma once

#include <optional>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "scheduler/scheduler_output.h"

namespace atom {

class StepChannel {
 public:
  // `nodes`, with one rank for each node, outlives it.
  explicit StepChannel(Communicator* nodes) : nodes_(*nodes), stream_(&pool_) {}

  // Until all nodes have come here.
  void meet() { nodes_.barrier(stream_); }
  // At the head.
  void send(const SchedulerOutput& step);
  // At another node: waits for the next one. None when the nodes have failed, which nodes->status()
  // explains.
  std::optional<SchedulerOutput> receive();

 private:
  Communicator& nodes_;
  ThreadPool pool_{1};
  Stream stream_;
};

}  // namespace atom
