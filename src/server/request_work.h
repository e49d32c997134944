// A request on its way to a worker. Dropped, with the request's body, as soon as its client has
// gone; and when memory runs out in it, the request fails and nothing else.
#pragma once

#include "base/mutex.h"
#include "server/endpoint.h"

namespace atom::server {

class RequestWork {
 public:
  RequestWork(ServerContext* context, const Endpoint* endpoint, ExchangePtr exchange)
      : context_(context), endpoint_(endpoint), exchange_(std::move(exchange)) {}

  // Answers the exchange, unless it was dropped. Once.
  void run();
  // Any thread.
  void drop() { (void)take(); }

 private:
  ExchangePtr take();

  ServerContext* const context_;
  const Endpoint* const endpoint_;
  Mutex mutex_;
  ExchangePtr exchange_ GUARDED_BY(mutex_);  // null once it runs or is dropped
};

}  // namespace atom::server
