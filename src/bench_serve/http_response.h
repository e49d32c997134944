// Reads one HTTP/1.1 response from bytes as they come, in whatever pieces. The body is handed on in
// place, without its framing. Every size is bounded; any bytes give a response or an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace atom::bench_serve {

struct HttpLimits {
  size_t max_header_size = 64 << 10;           // bytes of status line and headers
  uint64_t max_body_size = uint64_t{1} << 30;  // bytes
};

struct HttpHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  // The first header of that name, which is in lower case; empty when there is none.
  std::string_view header(std::string_view name) const;
};

// Takes the body in pieces that are valid during the call.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual void on_head(const HttpHead& head) = 0;  // once, before the body; not for 1xx
  virtual Status on_body(std::string_view piece) = 0;
};

class HttpResponseParser {
 public:
  explicit HttpResponseParser(const HttpLimits& limits = {}) : limits_(limits) {}

  void reset();

  // An error of the format, a limit or the sink; nothing may be fed after one.
  Status feed(std::string_view bytes, BodySink* sink);
  // The connection was closed by the server: an error unless the response is complete now.
  Status feed_end();

  bool complete() const { return state_ == State::kComplete; }
  bool started() const { return state_ != State::kHead || !head_text_.empty(); }
  // Whether the connection can carry another exchange: valid once complete.
  bool can_reuse() const { return keep_alive_ && !has_excess_; }
  const HttpHead& head() const { return head_; }

 private:
  enum class State {
    kHead,
    kLengthBody,
    kUntilClose,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kComplete
  };

  Status feed_head(std::string_view* bytes, BodySink* sink);
  Status parse_head(std::string_view text);
  Status choose_body(BodySink* sink);
  // A line of chunk framing, without its end; nothing when it is not complete yet.
  Status take_line(std::string_view* bytes, std::string_view* line, bool* complete);
  Status feed_framing(std::string_view* bytes);
  Status feed_body(std::string_view* bytes, BodySink* sink);

  const HttpLimits limits_;
  State state_ = State::kHead;
  std::string head_text_;
  std::string line_;         // a framing line that came in parts
  bool line_taken_ = false;  // line_ was handed out and is to be cleared
  HttpHead head_;
  uint64_t remaining_ = 0;  // bytes of the body or chunk
  uint64_t body_size_ = 0;
  size_t num_interim_ = 0;
  size_t trailer_size_ = 0;
  bool keep_alive_ = false;
  bool has_excess_ = false;
};

}  // namespace atom::bench_serve
