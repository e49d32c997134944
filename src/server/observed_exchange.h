// An exchange seen from outside the endpoint: knows who asks, adds the headers that every answer
// carries (CORS), and counts and logs the request when its answer is complete or its client gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/caller.h"
#include "server/http/http_exchange.h"

namespace atom::server {

class ObservedExchange final : public HttpExchange,
                               public std::enable_shared_from_this<ObservedExchange> {
 public:
  // What became of it. Status 499: the client went away.
  struct Outcome {
    int status = 0;
    std::chrono::nanoseconds duration{0};
  };
  using Observer = std::function<void(const HttpRequest&, const Outcome&)>;

  // `observer` runs once, on the thread that completes the exchange. `caller`: null when it is not
  // known.
  ObservedExchange(std::shared_ptr<HttpExchange> inner,
                   CallerPtr caller,
                   HttpHeaders headers,
                   Observer observer);
  ~ObservedExchange() override;

  // Not null in an endpoint.
  const CallerPtr& caller() const { return caller_; }

  const HttpRequest& request() const override { return inner_->request(); }
  void respond(HttpResponse response) override;
  void stream(HttpResponse head, std::shared_ptr<BodyStream> body) override;
  void fail(HttpResponse response) override;
  const std::atomic<bool>& gone() const override { return inner_->gone(); }
  void notify() override { inner_->notify(); }
  void on_disconnect(std::function<void()> callback) override;

 private:
  class Body;
  void complete(int status);

  const std::shared_ptr<HttpExchange> inner_;
  const CallerPtr caller_;
  const HttpHeaders headers_;
  const Observer observer_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<bool> is_complete_{false};
};

}  // namespace atom::server
