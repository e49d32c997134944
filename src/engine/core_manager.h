// Starts the engine cores, carries requests to them and their responses back. One core today, a
// thread of this process; child processes and further data-parallel ranks get their messages
// through the same two sockets. send() may be called from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <zmq.hpp>

#include "base/status.h"
#include "config/resolve.h"
#include "engine/messages.h"

namespace atom {

class CoreManager {
 public:
  using LoadingHandler = std::function<void(const CoreLoading&)>;
  using ResponseHandler = std::function<void(CoreResponse)>;

  // Starts a core and waits until it is ready or has failed. `on_loading` is called on the calling
  // thread meanwhile; `on_response` afterwards, on the manager's thread, for everything the core
  // says.
  static Result<std::unique_ptr<CoreManager>> start(const ResolvedConfig& config,
                                                    int64_t num_sampled_ids,
                                                    const LoadingHandler& on_loading,
                                                    ResponseHandler on_response);
  // Stops the core after the step that is running.
  ~CoreManager();

  const CoreReady& ready() const { return ready_; }

  // An error when the core is gone.
  Status send(const CoreRequest& request);

 private:
  explicit CoreManager(ResponseHandler on_response);

  Status wait_until_ready(const LoadingHandler& on_loading);
  void receive_loop();

  zmq::context_t context_;
  std::mutex send_mutex_;
  zmq::socket_t requests_;   // ROUTER; guarded by send_mutex_
  zmq::socket_t responses_;  // PULL; of the thread that receives
  ResponseHandler on_response_;
  CoreReady ready_;
  std::atomic<bool> stopping_{false};
  std::thread core_thread_;
  std::thread receive_thread_;
};

}  // namespace atom
