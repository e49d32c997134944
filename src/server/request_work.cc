#include "server/request_work.h"

#include <new>
#include <utility>

#include "base/log.h"

namespace atom::server {
namespace {

HttpResponse out_of_memory() {
  ApiError error;
  error.http_status = 503;
  error.type = "service_unavailable";
  error.code = "out_of_memory";
  error.message = "the server has not enough memory for this request";
  return error_response(error);
}

}  // namespace

ExchangePtr RequestWork::take() {
  const MutexLock lock(&mutex_);
  return std::exchange(exchange_, nullptr);
}

void RequestWork::run() {
  const ExchangePtr exchange = take();
  if (exchange == nullptr || exchange->gone()) return;
  try {
    endpoint_->answer(context_, exchange);
  } catch (const std::bad_alloc&) {
    // What it had is free again: there is room for a few words.
    log::error("out of memory in a request");
    exchange->fail(out_of_memory());
  }
}

}  // namespace atom::server
