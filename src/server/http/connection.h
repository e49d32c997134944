// One client: reads its requests one after the other, hands each to the handler and writes what
// is answered. On the I/O thread.
//
// A client that closes its side of the connection while its answer is being computed or streamed
// counts as gone, as with most servers: a half-closed connection cannot be told from one whose
// program has ended. An answer that is complete is still written.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/http/io_loop.h"
#include "server/http/request_reader.h"
#include "server/http/response_writer.h"
#include "server/http/transport.h"

namespace atom::server {

inline IoLoop::Clock::time_point time_after(std::chrono::milliseconds delay) {
  return IoLoop::Clock::now() + delay;
}

// Empties a buffer, and frees one that is larger than what is kept for the next use.
inline void release_buffer(std::string* buffer, size_t kept_size) {
  buffer->clear();
  if (buffer->capacity() > kept_size) *buffer = std::string();
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using TimePoint = IoLoop::Clock::time_point;

  // Takes over `fd`. `slot` is its place in the loop's table.
  Connection(IoLoop* loop, int fd, std::string peer, size_t slot);
  ~Connection();

  // Tells a refused client that there are too many.
  void start(bool refused);
  void set_slot(size_t slot) { slot_ = slot; }

  // The exchange has an answer or more of its stream.
  void on_ready();
  void on_deadline(TimePoint now);
  void on_drain();
  // Closes at once; what is being answered is told.
  void abort();

 private:
  enum class Phase {
    kHandshake,  // of TLS
    kReading,    // waits for a request or is in the middle of one
    kAnswering,  // has an exchange
    kFlushing,   // writes a last answer of its own
    kLingering,  // lets the client read the end before the socket is closed
    kClosed
  };
  enum class Flush { kDone, kBlocked, kClosed };

  // Runs `step`; a connection for which memory does not suffice is aborted.
  template <typename Step>
  void guarded(Step step);
  void wait_readable();
  void wait_writable();
  void on_readable();
  void on_writable();
  void shake_hands();
  void on_peer_end(bool orderly);

  void receive(std::string_view bytes);
  void discard(std::string_view bytes);
  void process(std::string_view bytes);
  void process_held_back();
  void on_body_begins();
  void start_exchange(HttpRequest&& request);

  void pump();
  void begin_answer(Answer answer);
  void take_piece();
  void send_keep_alive();
  void finish_response();

  void append_head(const HttpResponse& response, std::string_view request_id, BodyFraming framing);
  bool has_output() const { return !head_.empty() || !body_.empty(); }
  Flush flush();
  void fail(RequestError error);
  void linger();
  void close();
  void set_time_limit(TimePoint limit);

  IoLoop* const loop_;
  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> descriptor_;
  Transport transport_;
  const std::string peer_;
  size_t slot_;
  TimePoint time_limit_ = IoLoop::kNever;  // of the phase
  Phase phase_ = Phase::kReading;

  bool refused_ = false;
  bool read_waiting_ = false;
  bool write_waiting_ = false;
  bool output_blocked_ = false;
  bool read_paused_ = false;  // enough is held back; looks for the client's end at each deadline
  bool peer_ended_ = false;
  bool processing_ = false;

  // These belong to the request being read or answered.
  std::unique_ptr<RequestReader> reader_;
  bool body_begun_ = false;
  bool body_refused_ = false;  // what comes of it is thrown away
  bool is_http_1_1_ = true;
  bool is_head_ = false;
  bool keep_alive_ = false;
  bool answering_ = false;  // the answer's head is in the output
  bool chunked_ = false;
  bool unwanted_body_ = false;  // a stream was the answer to HEAD
  bool broken_ = false;         // the stream's end will be missing
  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<BodyStream> stream_;

  std::string held_back_;  // bytes after the request that is being answered
  // Output: head_ from head_written_, then body_ from body_written_.
  std::string head_;
  std::string body_;
  size_t head_written_ = 0;
  size_t body_written_ = 0;
  size_t num_discarded_ = 0;
};

}  // namespace atom::server
