// Runs an engine core, as a thread of this process or as a child process that it supervises, and
// carries requests to it and its responses back through the same messages.
//
// One thread, the manager's, starts cores, receives what they say, notices when they die or fall
// silent, ends them, and calls every handler. A child is started again when it dies; a core that is
// a thread, and one that fails at its first start, is not. Each life of a core has sockets of its
// own, so nothing that a dead one left behind is taken for the next one's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "base/child_process.h"
#include "base/mutex.h"
#include "base/status.h"
#include "config/resolve.h"
#include "engine/core_endpoints.h"
#include "engine/core_launch.h"
#include "engine/core_socket.h"
#include "engine/core_watch.h"
#include "engine/engine_health.h"
#include "engine/ipc_folder.h"
#include "engine/messages.h"

namespace atom {

class CoreManager {
 public:
  // Starts a core and waits until it is ready or has failed.
  static Result<std::unique_ptr<CoreManager>> start(const ResolvedConfig& config,
                                                    int64_t num_sampled_ids,
                                                    CoreLaunch launch,
                                                    CoreHandlers handlers);
  ~CoreManager();

  // Ends the core after the step that is running, a child at the latest after shutdown_timeout. No
  // handler is called after it. By one thread; the destructor does it otherwise.
  void stop();

  // From any thread. What is sent while there is no core is dropped: on_down tells. A core that
  // cannot be reached any more is ended, which on_down tells as well.
  void send(const CoreRequest& request);

  EngineHealth health() const;

 private:
  // How a life of a core ended.
  struct Ending {
    std::string how;                // "died (signal 9: Killed)"
    std::optional<Status> failure;  // as the core itself put it
    bool exited = false;            // by itself: no signal ended it
  };

  CoreManager(const ResolvedConfig& config,
              int64_t num_sampled_ids,
              CoreLaunch launch,
              CoreHandlers handlers);

  void run();
  // One life of a core. Returns when it has ended and is reaped.
  Ending run_core();
  // Sockets of a life's own, in a new folder when somebody has taken the old one away.
  Result<EngineCoreEndpoints> bind_sockets(zmq::socket_t* responses);
  Status launch_core(const EngineCoreEndpoints& endpoints);
  // Returns why it is over; nothing when the manager is to stop.
  std::optional<Ending> supervise(zmq::socket_t& responses);
  std::optional<Ending> receive(zmq::socket_t& responses);
  std::optional<Ending> receive_last(zmq::socket_t& responses, const Ending& ending);
  std::optional<Ending> handle(CoreResponse response);
  std::optional<Ending> judge();
  Ending death() const;
  void announce_when_reachable();
  void note_progress();
  // The core is as good as gone: tells whom it concerns.
  void go_down(const Ending& ending);
  void stop_core();
  // True when the manager is to stop.
  bool wait_for_stop(std::chrono::milliseconds timeout);
  void set_state(EngineState state, const std::string& reason);
  void wake();

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  const CoreLaunch launch_;
  const CoreHandlers handlers_;
  std::unique_ptr<IpcFolder> folder_;  // of a child's sockets
  zmq::context_t context_;
  FileDescriptor wake_;  // an eventfd that ends the waiting of the manager's thread

  CoreSocket requests_;
  std::atomic<bool> stopping_{false};

  mutable Mutex health_mutex_;
  Condition started_changed_;
  EngineHealth health_ GUARDED_BY(health_mutex_);
  std::optional<Status> first_start_ GUARDED_BY(health_mutex_);  // how it went

  // The manager's thread alone uses these.
  uint64_t num_lives_ = 0;
  uint64_t num_malformed_ = 0;          // messages
  bool was_ready_ = false;              // at any time
  int32_t num_blocks_ = 0;              // of the first life that was ready
  bool told_silence_ = false;           // the log has been told that the core is silent
  bool up_ = false;                     // this core is, and on_ready was told
  std::optional<CoreReady> announced_;  // it says that it is ready
  CoreWatch::Clock::time_point announced_at_;
  std::optional<CoreWatch> watch_;
  RestartPolicy restarts_;
  std::optional<std::chrono::milliseconds> restart_delay_;  // after a death; none: never again
  std::thread core_thread_;
  std::optional<ChildProcess> child_;

  std::thread thread_;
};

}  // namespace atom
