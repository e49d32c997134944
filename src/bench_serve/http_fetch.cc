#include "bench_serve/http_fetch.h"

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <cmath>

#include "bench_serve/http_response.h"

namespace atom::bench_serve {
namespace {

constexpr uint64_t kMaxReply = 32 << 20;  // bytes

using Clock = std::chrono::steady_clock;

class ReplySink : public BodySink {
 public:
  void on_head(const HttpHead& head) override { reply.status = head.status; }
  Status on_body(std::string_view piece) override {
    reply.body += piece;
    return {};
  }
  HttpReply reply;
};

// Waits until the connection can go on.
Status wait(const Connection& connection, IoState state, Clock::time_point deadline, int stop_fd) {
  const auto left = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
  if (left <= 0) return unavailable("no answer in time");
  const short events = state == IoState::kWantRead ? POLLIN : POLLOUT;
  pollfd waiting[2] = {{connection.fd(), events, 0}, {stop_fd, POLLIN, 0}};
  poll(waiting, stop_fd < 0 ? 1 : 2, static_cast<int>(std::min(std::ceil(left), 1e9)));
  if (waiting[1].revents != 0) return {StatusCode::kAborted, "interrupted"};
  return {};
}

}  // namespace

std::string http_request(const ServerUrl& url,
                         std::string_view method,
                         std::string_view path,
                         std::string_view headers,
                         std::string_view body) {
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}\r\n{}", method, url.base_path, path, url.authority, headers);
  if (!body.empty()) {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  text += "\r\n";
  text += body;
  return text;
}

Result<HttpReply> http_fetch(const Connector& connector,
                             std::string_view request,
                             double timeout,
                             int stop_fd) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connector.connect());
  const auto go_on = [&](const IoResult& result) -> Status {
    if (result.state == IoState::kFailed) return unavailable("{}", connection->error());
    if (result.state == IoState::kEnd) return unavailable("the server closed the connection");
    if (result.state == IoState::kDone) return {};
    return wait(*connection, result.state, deadline, stop_fd);
  };
  IoResult result{IoState::kWantRead, 0};
  while (result.state != IoState::kDone) {
    result = connection->finish_connecting();
    RETURN_IF_ERROR(go_on(result));
  }
  while (!request.empty()) {
    result = connection->write(request);
    RETURN_IF_ERROR(go_on(result));
    request.remove_prefix(result.size);
  }
  HttpResponseParser parser({.max_body_size = kMaxReply});
  ReplySink sink;
  char buffer[16384];
  while (!parser.complete()) {
    if (Clock::now() > deadline) return unavailable("no answer in time");
    result = connection->read(buffer, sizeof buffer);
    if (result.state == IoState::kEnd) {
      RETURN_IF_ERROR(parser.feed_end());
      break;
    }
    RETURN_IF_ERROR(go_on(result));
    RETURN_IF_ERROR(parser.feed({buffer, result.size}, &sink));
  }
  return std::move(sink.reply);
}

}  // namespace atom::bench_serve
