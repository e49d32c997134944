// The copies that a node leads which is not the head: their cores on threads of this process, and
// what carries messages between them and the hub at the head (engine/copy_group.h). They end when
// the nodes fail, by which the head also says that it has ended.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "engine/copy_channel.h"
#include "engine/engine_core.h"
#include "runner/node_ranks.h"

namespace atom {

class CopyHost {
 public:
  CopyHost(const ResolvedConfig& config, int64_t num_sampled_ids, std::shared_ptr<NodeRanks> ranks);

  // Returns why they have ended. Once.
  Status run();
  // All copies have been able to serve.
  bool was_ready() const { return num_ready_ == std::ssize(copies_); }

 private:
  struct Copy {
    int number = 0;           // of all nodes
    zmq::socket_t requests;   // DEALER
    zmq::socket_t responses;  // PULL
    EngineCoreEndpoints endpoints;
    CopyPlace place;
  };

  void make_copies();
  void take_requests();
  void send_responses();

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  const std::shared_ptr<NodeRanks> ranks_;
  const int first_copy_;
  zmq::context_t context_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::atomic<int> num_running_{0};
  int num_ready_ = 0;
};

}  // namespace atom
