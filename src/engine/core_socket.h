// The way from the front end to a core: while there is a core that takes requests, they go out from
// any thread. Each life of a core has a socket of its own.
#pragma once

#include <string>
#include <zmq.hpp>

#include "base/mutex.h"
#include "engine/messages.h"

namespace atom {

// The name of every core toward its socket.
inline constexpr const char* kCoreIdentity = "core-0";

class CoreSocket {
 public:
  // For the next life. Throws zmq::error_t.
  void open(zmq::context_t& context, const std::string& endpoint) EXCLUDES(mutex_);
  void close() EXCLUDES(mutex_);

  // Whether the core has connected; from then on send() sends, until it is cut off.
  bool reach() EXCLUDES(mutex_);
  void cut_off() EXCLUDES(mutex_);

  // False when a core that had been reached is not there any more. What is sent while there is
  // none is dropped.
  bool send(const CoreRequest& request) EXCLUDES(mutex_);
  // A send() has failed in this life.
  bool has_failed() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  zmq::socket_t socket_ GUARDED_BY(mutex_);  // ROUTER; none between two lives
  bool is_reachable_ GUARDED_BY(mutex_) = false;
  bool has_failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace atom
