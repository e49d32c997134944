// The ranks of an engine that are threads of this process while others are on other nodes, on the
// CPU or with a card each (runner/node_plan.h). Groups that are on one node speak through memory
// (comm/local/, comm/device/), others over TCP (comm/tcp/), to which cards come by way of the host
// (comm/staged/).
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/tcp/mesh.h"
#include "config/resolve.h"
#include "runner/local_ranks.h"

namespace atom {

class NodeRanks : public LocalRanks {
 public:
  // Comes together with the other nodes. `first`, `timeout`: as of LocalRanks; the device is that
  // of this node's first rank. `mesh` says where; its numbers of processes are those of nodes.
  static Result<std::shared_ptr<NodeRanks>> form(const ResolvedConfig& config,
                                                 Device first,
                                                 std::chrono::milliseconds timeout,
                                                 const MeshOptions& mesh);

  // Where there are several copies, what nodes that lead some tell each other. These groups wait
  // for ever and fail with the others.
  //
  // One rank for each node.
  Communicator& nodes() const { return *communicators_.front(); }
  // Between the head, which is rank 0, and each other node that leads copies, by node; null where
  // this node is none of the two.
  Communicator* answers_of(int node) const { return answers_[static_cast<size_t>(node)]; }
  // One rank for each copy: of those that this node leads, in order; nothing where copies do not
  // share experts.
  const std::vector<Communicator*>& lockstep() const { return lockstep_; }

 private:
  class Maker;

  NodeRanks() = default;

  std::vector<Communicator*> answers_;
  std::vector<Communicator*> lockstep_;
};

}  // namespace atom
