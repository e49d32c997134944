// Copies of the model that are one engine core: a loop, a scheduler, a KV cache and runners for
// each, on threads of one process, or of one on each node that leads some (engine/copy_host.h). To
// the front end they are one core; in between stands this thread's hub, which gives each request to
// a copy and sends on what copies say. A copy is an EngineCore like any other, which hears the same
// messages.
//
// Of copies that share their experts no step goes without the others, and nodes come and go
// together, so copies live and die together: when one fails, all collectives end at once, the core
// says why and ends, and whoever supervises the process starts all of them again.
#pragma once

#include <memory>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "config/resolve.h"
#include "engine/copy_channel.h"
#include "engine/engine_core.h"
#include "engine/request_router.h"
#include "runner/node_plan.h"

namespace atom {

class CopyGroup {
 public:
  // As EngineCore::serve(), of a configuration whose copies are one core.
  static bool serve(const ResolvedConfig& config,
                    int64_t num_sampled_ids,
                    zmq::context_t& context,
                    const EngineCoreEndpoints& endpoints);

 private:
  struct Copy {
    int number = 0;
    zmq::socket_t requests;       // DEALER, of a copy that is here
    CopyChannel* node = nullptr;  // of another node's: to it
    zmq::socket_t responses;      // PULL
    EngineCoreEndpoints endpoints;
    CopyPlace place;  // here
    std::optional<CoreReady> ready;
    CoreStats stats;
    CoreHeartbeat heartbeat;
    bool has_spoken = false;  // since the hub's last heartbeat
  };

  CopyGroup(const ResolvedConfig& config,
            int64_t num_sampled_ids,
            zmq::context_t& context,
            const EngineCoreEndpoints& endpoints);
  ~CopyGroup();

  // Of this process, or with other nodes.
  Status make_ranks();
  bool run();
  void start_copies();
  // Takes what copies of another node say, until the nodes have failed.
  void listen_to(int node);
  void end_nodes();
  // Waits for a message from any side, or for the time of a heartbeat.
  void wait();
  void handle(CoreRequest request);
  void give(AddRequest add);
  void give(const AbortRequests& aborts);
  // Copies but this one may sleep, and every exchange is one of all.
  void wake_others(int copy);
  void handle(int index, CoreResponse response);
  void announce_when_ready();
  void send_heartbeat_if_due();
  void send(const CoreResponse& response);
  void send_to(Copy& copy, const CoreRequest& request);

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  zmq::context_t& context_;
  const EngineCoreEndpoints endpoints_;
  const NodePlan plan_;
  zmq::socket_t requests_;   // DEALER to the front end
  zmq::socket_t responses_;  // PUSH to it
  std::shared_ptr<LocalRanks> ranks_;
  std::shared_ptr<NodeRanks> nodes_;                     // the same, where there are other nodes
  std::vector<std::unique_ptr<Communicator>> lockstep_;  // of copies that are all here
  std::vector<std::unique_ptr<CopyChannel>> node_requests_;  // by node
  std::vector<std::unique_ptr<Copy>> copies_;
  RequestRouter router_;
  std::vector<std::thread> threads_;  // one for each copy that is here and each other node
  std::atomic<int> num_running_{0};   // of them
  bool is_ready_ = false;
  bool is_ending_ = false;            // other nodes have been told
  std::optional<CoreFailed> failed_;  // the first reason
  std::chrono::steady_clock::time_point last_sent_;
};

// The core of this configuration, of one kind or the other.
bool serve_core(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints);

}  // namespace atom
