// The ranks of an engine that are threads of this process while others are on other nodes, on the
// CPU or with a card each. Groups that are on one node speak through memory (comm/local/,
// comm/device/), others over TCP (comm/tcp/), to which cards come by way of the host
// (comm/staged/).
//
// The last stage is on the first node, the head, whose scheduler hears what it chose; nodes after
// it have the stages before, from behind.
#pragma once

#include <chrono>
#include <memory>

#include "comm/tcp/mesh.h"
#include "config/engine_config.h"
#include "runner/local_ranks.h"

namespace atom {

class NodeRanks : public LocalRanks {
 public:
  // Comes together with the other nodes. `first`, `timeout`: as of LocalRanks; the device is that
  // of this node's first rank. `mesh` says where; its numbers of processes are those of nodes.
  static Result<std::unique_ptr<NodeRanks>> form(const EngineConfig& config,
                                                 Device first,
                                                 std::chrono::milliseconds timeout,
                                                 const MeshOptions& mesh);

  // One rank for each node, which waits for ever; it fails with the others.
  Communicator& nodes() const { return *communicators_.front(); }

 private:
  NodeRanks() = default;
};

}  // namespace atom
