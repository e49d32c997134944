// Reads the answer to one request: HTTP, the event stream in it, and what it says of tokens, with
// the time of each. Knows no sockets. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench_serve/http_response.h"
#include "bench_serve/sse_parser.h"
#include "bench_serve/stream_event.h"

namespace atom::bench_serve {

enum class ErrorKind {
  kNone,
  kConnect,  // no connection, or no TLS
  kStatus,   // an HTTP status other than 2xx
  kTimeout,
  kCut,        // the connection or the stream ended early
  kMalformed,  // not HTTP, not events, not JSON, or past a limit
  kReported,   // the server sent an error inside the stream
  kEmpty,      // a well-formed answer without a token
  kCancelled,  // by the user; neither a success nor a failure
};
constexpr int kNumErrorKinds = 9;
const char* error_kind_name(ErrorKind kind);

// Times are seconds on the caller's clock; negative: it has not happened.
struct Answer {
  ErrorKind error_kind = ErrorKind::kNone;
  std::string error;  // a line for people
  int http_status = 0;
  double first_token = -1;
  double last_token = -1;
  double end = -1;          // the whole answer was there
  std::vector<float> gaps;  // seconds between events that carry tokens
  int64_t num_token_events = 0;
  int64_t prompt_tokens = -1;  // of the usage; negative: the server did not say
  int64_t completion_tokens = -1;
};

class AnswerReader : private BodySink {
 public:
  // For the next answer. `streamed`: the request asked for a stream of events.
  void start(bool streamed);

  // Bytes that were there at `now`. finished() then says whether the answer is.
  void feed(std::string_view bytes, double now);
  // The server closed the connection at `now`.
  void feed_end(double now);
  // Ends the answer with an error of the caller.
  void fail(ErrorKind kind, std::string message, double now);

  // The answer is complete or has failed. The end of the HTTP message may be yet to come.
  bool finished() const { return finished_; }
  // Nothing of an answer has come.
  bool untouched() const { return !parser_.started(); }
  // The bytes were no HTTP response or passed a limit: nothing more can be read.
  bool failed() const { return broken_; }
  // The HTTP message is over as well.
  bool message_complete() const { return parser_.complete(); }
  bool can_reuse_connection() const {
    return !broken_ && parser_.complete() && parser_.can_reuse();
  }

  int64_t num_token_events() const { return answer_.num_token_events; }
  Answer take_answer() { return std::move(answer_); }

 private:
  void on_head(const HttpHead& head) override;
  Status on_body(std::string_view piece) override;
  Status on_event(std::string_view data, bool is_error);
  void end_of_message();
  void read_whole_body();
  void fail_with_body();
  void note_token();
  void finish();

  HttpResponseParser parser_;
  SseParser events_;
  Answer answer_;
  std::string body_;  // of an answer that is no stream
  double now_ = 0;
  bool streamed_ = false;
  bool is_event_stream_ = false;
  bool is_first_event_ = true;
  bool is_final_ = false;  // a finish_reason was seen
  bool finished_ = false;
  bool broken_ = false;
};

}  // namespace atom::bench_serve
