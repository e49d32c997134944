// Copies of the model that share their experts, as one engine core: a loop, a scheduler, a KV cache
// and runners for each, on threads of one process. To the front end they are one core; in between
// stands this thread's hub, which gives each request to a copy and sends on what copies say. A copy
// is an EngineCore like any other, which hears the same messages.
//
// No step of one copy goes without the others, so they live and die together: when one fails, all
// collectives end at once, the core says why and ends, and whoever supervises the process starts
// all of them again.
#pragma once

#include <memory>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "config/resolve.h"
#include "engine/engine_core.h"
#include "engine/request_router.h"

namespace atom {

class CopyGroup {
 public:
  // As EngineCore::serve(), of a configuration whose copies share their experts.
  static bool serve(const ResolvedConfig& config,
                    int64_t num_sampled_ids,
                    zmq::context_t& context,
                    const EngineCoreEndpoints& endpoints);

 private:
  struct Copy {
    zmq::socket_t requests;   // DEALER
    zmq::socket_t responses;  // PULL
    EngineCoreEndpoints endpoints;
    std::unique_ptr<CopyPlace> place;
    std::optional<CoreReady> ready;
    CoreStats stats;
    CoreHeartbeat heartbeat;
    bool has_spoken = false;  // since the hub's last heartbeat
    std::thread thread;
  };

  CopyGroup(const ResolvedConfig& config,
            int64_t num_sampled_ids,
            zmq::context_t& context,
            const EngineCoreEndpoints& endpoints,
            std::shared_ptr<LocalRanks> ranks);
  ~CopyGroup();

  bool run();
  void start_copies();
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
  std::shared_ptr<LocalRanks> ranks_;
  std::vector<std::unique_ptr<Communicator>> lockstep_;  // of the copies
  zmq::socket_t requests_;                               // DEALER to the front end
  zmq::socket_t responses_;                              // PUSH to it
  std::vector<std::unique_ptr<Copy>> copies_;
  RequestRouter router_;
  std::atomic<int> num_running_{0};
  bool is_ready_ = false;
  std::optional<CoreFailed> failed_;  // the first reason
  std::chrono::steady_clock::time_point last_sent_;
};

// The core of this configuration, of one kind or the other.
bool serve_core(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints);

}  // namespace atom
