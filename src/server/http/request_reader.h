// Reads one HTTP/1.x request from bytes that come in pieces of any size. Strict where leniency
// would let two parties see different requests in the same bytes: line ends are CRLF, no folded
// headers, one length. Allocates little before the header is complete. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace atom::server {

struct RequestLimits {
  size_t max_header_size;  // bytes of request line and headers
  size_t max_body_size;
};

struct RequestError {
  int status = 0;  // 0: none
  std::string_view message;
};

// What is wrong with the bytes of a request's head, from the request line to the empty line, apart
// from what the lines mean.
RequestError check_head_bytes(std::string_view head);

class RequestReader {
 public:
  enum class State {
    kHead,      // wants more of the head
    kBody,      // the head is complete, wants more of the body
    kComplete,  // take_request() has it
    kFailed     // error() says why; nothing that follows can be read
  };

  // `budget` of all bodies; null: unbounded.
  explicit RequestReader(const RequestLimits& limits, std::shared_ptr<ByteBudget> budget = nullptr);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes bytes; the number it used is less than given only when it is complete or has failed.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }
  const RequestError& error() const { return error_; }

  // Valid once the head is complete.
  const HttpRequest& head() const;  // its body may have begun
  bool is_http_1_1() const;
  bool keeps_alive() const;
  bool expects_continue() const;
  // The client's X-Request-Id if it is sane, else empty.
  std::string_view request_id() const;

  // Without id and peer.
  HttpRequest take_request();
  // Without the body, which is not read. Once the head is complete.
  HttpRequest take_head();

 private:
  class Parser;

  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  bool parse_head(std::string_view head);
  void fail(const RequestError& error);

  const RequestLimits limits_;
  const std::shared_ptr<ByteBudget> budget_;
  State state_ = State::kHead;
  RequestError error_;
  std::string pending_;  // an incomplete head, chunk size line or trailer
  std::unique_ptr<Parser> parser_;
};

}  // namespace atom::server
