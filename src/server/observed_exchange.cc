#include "server/observed_exchange.h"

#include <utility>

namespace atom::server {
namespace {

constexpr int kClientGone = 499;  // nginx's number for it

}  // namespace

class ObservedExchange::Body final : public BodyStream {
 public:
  Body(std::shared_ptr<ObservedExchange> exchange, int status, std::shared_ptr<BodyStream> inner)
      : exchange_(std::move(exchange)), status_(status), inner_(std::move(inner)) {}

  State take(std::string* out) override {
    const State state = inner_->take(out);
    if (state != State::kMore) exchange_->complete(status_);
    return state;
  }
  std::string_view keep_alive() const override { return inner_->keep_alive(); }

 private:
  const std::shared_ptr<ObservedExchange> exchange_;
  const int status_;
  const std::shared_ptr<BodyStream> inner_;
};

ObservedExchange::ObservedExchange(std::shared_ptr<HttpExchange> inner,
                                   CallerPtr caller,
                                   HttpHeaders headers,
                                   Observer observer)
    : inner_(std::move(inner)),
      caller_(std::move(caller)),
      headers_(std::move(headers)),
      observer_(std::move(observer)) {}

// Dropped unanswered: the client had gone before anybody listened.
ObservedExchange::~ObservedExchange() {
  complete(kClientGone);
}

void ObservedExchange::respond(HttpResponse response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  inner_->respond(std::move(response));
  complete(status);
}

void ObservedExchange::fail(HttpResponse response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  inner_->fail(std::move(response));
  complete(status);
}

void ObservedExchange::stream(HttpResponse head, std::shared_ptr<BodyStream> body) {
  const int status = head.status;
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  inner_->stream(std::move(head),
                 std::make_shared<Body>(shared_from_this(), status, std::move(body)));
}

void ObservedExchange::on_disconnect(std::function<void()> callback) {
  inner_->on_disconnect([self = weak_from_this(), callback = std::move(callback)] {
    if (const auto exchange = self.lock()) exchange->complete(kClientGone);
    callback();
  });
}

void ObservedExchange::complete(int status) {
  if (is_complete_.exchange(true)) return;
  observer_(inner_->request(), {status, std::chrono::steady_clock::now() - begin_});
}

}  // namespace atom::server
