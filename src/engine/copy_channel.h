// How messages of copies (engine/messages.h) come from one node to another, one way. Of one thread
// at each end. Where the nodes have failed, what is sent goes nowhere and nothing is received.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "config/engine_config.h"

namespace atom {

struct CopyFrame {
  int copy = 0;                // of all nodes
  std::vector<uint8_t> bytes;  // an encoded message
};

class CopyChannel {
 public:
  // `group` outlives it; `other`: the rank at the other end.
  CopyChannel(Communicator* group, int other) : group_(*group), other_(other), stream_(&pool_) {}

  void send(const CopyFrame& frame);
  // Waits for the next one. None when the nodes have failed, which the group's status explains.
  std::optional<CopyFrame> receive();

 private:
  Communicator& group_;
  const int other_;
  ThreadPool pool_{1};
  Stream stream_;
};

}  // namespace atom
