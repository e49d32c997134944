#include "server/http/connection.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <new>
#include <utility>

#include "base/log.h"
#include "server/http/http_text.h"

namespace atom::server {
namespace {

using boost::system::error_code;

// Bytes of further requests held while one is answered; beyond, the socket is not read.
constexpr size_t kMaxHeldBack = 64 << 10;
// Reads before other connections have their turn.
constexpr int kMaxReads = 8;
constexpr std::chrono::seconds kLingerTime{3};
constexpr size_t kMaxDiscarded = 64 << 20;
// While it streams, none larger than this.
constexpr size_t kMaxKeptPiece = 256 << 10;

}  // namespace

Connection::Connection(IoLoop* loop, int fd, std::string peer, size_t slot)
    : loop_(loop),
      descriptor_(loop->context()),
      transport_(fd, loop->tls()),
      peer_(std::move(peer)),
      slot_(slot) {
  error_code error;
  descriptor_.assign(fd, error);
  if (error) ::close(fd);
}

Connection::~Connection() = default;

void Connection::start(bool refused) {
  refused_ = refused;
  if (!descriptor_.is_open()) return close();
  if (refused) return fail({503, "The server has as many connections as it can serve."});
  if (transport_.is_tls()) {
    phase_ = Phase::kHandshake;
    set_time_limit(time_after(loop_->options().header_timeout));
  } else {
    set_time_limit(time_after(loop_->options().idle_timeout));
  }
  wait_readable();
}

void Connection::set_time_limit(TimePoint limit) {
  time_limit_ = limit;
  loop_->set_deadline(slot_, read_paused_ ? TimePoint::min() : limit);
}

// --- readiness -------------------------------------------------------------------------------

template <typename Step>
void Connection::guarded(Step step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    log::error("out of memory for a connection");
    abort();
  }
}

void Connection::wait_readable() {
  if (read_waiting_ || phase_ == Phase::kClosed || peer_ended_) return;
  read_waiting_ = true;
  descriptor_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                         [self = shared_from_this()](const error_code& error) {
                           self->read_waiting_ = false;
                           if (!error) self->guarded([&] { self->on_readable(); });
                         });
}

void Connection::wait_writable() {
  if (write_waiting_ || phase_ == Phase::kClosed) return;
  write_waiting_ = true;
  descriptor_.async_wait(boost::asio::posix::descriptor_base::wait_write,
                         [self = shared_from_this()](const error_code& error) {
                           self->write_waiting_ = false;
                           if (!error) self->guarded([&] { self->on_writable(); });
                         });
}

void Connection::on_readable() {
  for (int i = 0; i < kMaxReads; ++i) {
    if (phase_ == Phase::kHandshake) shake_hands();
    if (phase_ == Phase::kClosed || phase_ == Phase::kHandshake || peer_ended_) return;
    if (phase_ == Phase::kAnswering && held_back_.size() >= kMaxHeldBack) {
      read_paused_ = true;
      return set_time_limit(time_limit_);
    }
    size_t size = 0;
    switch (transport_.read(loop_->scratch(), IoLoop::kScratchSize, &size)) {
      case Transport::Outcome::kDone:
        receive({loop_->scratch(), size});
        // A plain socket that gave less is empty; inside TLS more may be decrypted already.
        if (!transport_.is_tls() && size < IoLoop::kScratchSize) return wait_readable();
        break;
      case Transport::Outcome::kWantsRead:
        return wait_readable();
      case Transport::Outcome::kWantsWrite:
        return wait_writable();
      case Transport::Outcome::kEnd:
        return on_peer_end(true);
      case Transport::Outcome::kError:
        return on_peer_end(false);
    }
  }
  boost::asio::post(loop_->context(), [self = shared_from_this()] {
    if (self->read_waiting_ || self->phase_ == Phase::kClosed) return;
    self->guarded([&] { self->on_readable(); });
  });
}

void Connection::on_writable() {
  switch (phase_) {
    case Phase::kHandshake:
      shake_hands();
      break;
    case Phase::kReading:
      flush();
      break;
    case Phase::kAnswering:
      pump();
      break;
    case Phase::kFlushing:
      if (flush() == Flush::kDone) linger();
      break;
    case Phase::kLingering:
    case Phase::kClosed:
      break;
  }
  // Inside TLS a read may have waited for this.
  if (!read_waiting_ && !read_paused_ && phase_ != Phase::kClosed) wait_readable();
}

void Connection::shake_hands() {
  switch (transport_.handshake()) {
    case Transport::Outcome::kDone:
      phase_ = Phase::kReading;
      set_time_limit(time_after(loop_->options().idle_timeout));
      break;
    case Transport::Outcome::kWantsRead:
      wait_readable();
      break;
    case Transport::Outcome::kWantsWrite:
      wait_writable();
      break;
    case Transport::Outcome::kEnd:
    case Transport::Outcome::kError:
      close();
      break;
  }
}

void Connection::on_peer_end(bool orderly) {
  peer_ended_ = true;
  const bool all_is_output = phase_ == Phase::kFlushing ||
                             (phase_ == Phase::kAnswering && answering_ && stream_ == nullptr);
  if (!orderly || !all_is_output) abort();
}

void Connection::on_ready() {
  guarded([this] { pump(); });
}

// --- requests --------------------------------------------------------------------------------

void Connection::receive(std::string_view bytes) {
  switch (phase_) {
    case Phase::kReading:
      process(bytes);
      break;
    case Phase::kAnswering:
      if (body_refused_) {
        discard(bytes);
      } else {
        held_back_.append(bytes);
      }
      break;
    case Phase::kFlushing:
    case Phase::kLingering:
      discard(bytes);
      break;
    case Phase::kHandshake:
    case Phase::kClosed:
      break;
  }
}

void Connection::discard(std::string_view bytes) {
  num_discarded_ += bytes.size();
  if (num_discarded_ > kMaxDiscarded) abort();
}

void Connection::process(std::string_view bytes) {
  const HttpServerOptions& options = loop_->options();
  processing_ = true;
  while (phase_ == Phase::kReading && !bytes.empty()) {
    if (reader_ == nullptr) {
      reader_ = std::make_unique<RequestReader>(
          RequestLimits{options.max_header_size, options.max_body_size}, loop_->body_budget());
      body_begun_ = false;
      body_refused_ = false;
      set_time_limit(time_after(options.header_timeout));
    }
    bytes.remove_prefix(reader_->feed(bytes));
    switch (reader_->state()) {
      case RequestReader::State::kHead:
        break;
      case RequestReader::State::kBody:
        on_body_begins();
        break;
      case RequestReader::State::kComplete:
        start_exchange(reader_->take_request());
        break;
      case RequestReader::State::kFailed:
        fail(reader_->error());
        break;
    }
  }
  processing_ = false;
  if (phase_ == Phase::kAnswering) receive(bytes);
}

void Connection::process_held_back() {
  const std::string bytes = std::exchange(held_back_, {});
  if (!bytes.empty()) process(bytes);
  if (phase_ == Phase::kReading && reader_ == nullptr && loop_->is_draining()) return linger();
  if (!std::exchange(read_paused_, false)) return;
  set_time_limit(time_limit_);
  if (!read_waiting_) on_readable();
}

void Connection::on_body_begins() {
  if (std::exchange(body_begun_, true)) return;
  if (!loop_->accepts_body(reader_->head())) {
    body_refused_ = true;
    return start_exchange(reader_->take_head());
  }
  set_time_limit(time_after(loop_->options().body_timeout));
  if (!reader_->expects_continue()) return;
  head_.append("HTTP/1.1 100 Continue\r\n\r\n");
  if (!write_waiting_) flush();
}

void Connection::start_exchange(HttpRequest&& request) {
  is_http_1_1_ = reader_->is_http_1_1();
  keep_alive_ = reader_->keeps_alive() && !loop_->is_draining() && !body_refused_;
  const std::string_view id = request.header("X-Request-Id");
  request.id = is_request_id(id) ? std::string(id) : make_request_id();
  reader_.reset();
  request.peer = peer_;
  is_head_ = request.method == "HEAD";
  answering_ = false;
  unwanted_body_ = false;
  broken_ = false;
  phase_ = Phase::kAnswering;
  set_time_limit(IoLoop::kNever);
  exchange_ = std::make_shared<Exchange>(std::move(request), loop_->ready(), this);
  loop_->exchange_opened();
  exchange_->hold_wake_ups();
  loop_->handler()(exchange_);
  exchange_->allow_wake_ups();
  pump();
}

// --- output and end --------------------------------------------------------------------------

Connection::Flush Connection::flush() {
  size_t written = 0;
  const Transport::Outcome outcome = transport_.write(std::string_view(head_).substr(head_written_),
                                                      std::string_view(body_).substr(body_written_),
                                                      &written);
  const size_t of_head = std::min(written, head_.size() - head_written_);
  head_written_ += of_head;
  body_written_ += written - of_head;
  switch (outcome) {
    case Transport::Outcome::kDone:
      head_.clear();
      release_buffer(&body_, kMaxKeptPiece);
      head_written_ = 0;
      body_written_ = 0;
      output_blocked_ = false;
      return Flush::kDone;
    case Transport::Outcome::kWantsWrite: {
      // The first time or with progress; a spurious wake-up does not prolong the wait.
      const bool is_waiting = std::exchange(output_blocked_, true);
      if (phase_ != Phase::kReading && (written > 0 || !is_waiting)) {
        set_time_limit(time_after(loop_->options().write_timeout));
      }
      wait_writable();
      return Flush::kBlocked;
    }
    case Transport::Outcome::kWantsRead:  // without renegotiation a write does not need input
    case Transport::Outcome::kEnd:
    case Transport::Outcome::kError:
      break;
  }
  abort();
  return Flush::kClosed;
}

void Connection::fail(RequestError error) {
  HttpResponse response;
  response.status = error.status;
  if (error.status == 429) response.headers.emplace_back("Retry-After", "1");
  response.body = error_json(error.status, error.message);
  std::string request_id;
  if (reader_ != nullptr) request_id = reader_->request_id();
  if (request_id.empty()) request_id = make_request_id();
  reader_.reset();
  keep_alive_ = false;
  chunked_ = false;
  append_head(response, request_id, BodyFraming::kLength);
  head_.append(response.body);
  phase_ = Phase::kFlushing;
  set_time_limit(time_after(loop_->options().write_timeout));
  if (!write_waiting_ && flush() == Flush::kDone) linger();
}

void Connection::linger() {
  if (peer_ended_) return close();
  transport_.shutdown_write();
  phase_ = Phase::kLingering;
  held_back_ = {};
  release_buffer(&head_, 0);
  release_buffer(&body_, 0);
  read_paused_ = false;
  set_time_limit(time_after(kLingerTime));
  wait_readable();
}

void Connection::on_deadline(TimePoint now) {
  if (read_paused_ && transport_.peer_has_closed()) return abort();
  if (now < time_limit_) return;
  switch (phase_) {
    case Phase::kReading:
      if (reader_ != nullptr) {
        return fail({408,
                     body_begun_ ? "The request's body did not arrive in time."
                                 : "The request's header did not arrive in time."});
      }
      return close();
    case Phase::kAnswering:
      if (has_output()) return abort();
      if (stream_ != nullptr) send_keep_alive();
      return;
    case Phase::kHandshake:
    case Phase::kFlushing:
    case Phase::kLingering:
      return close();
    case Phase::kClosed:
      return;
  }
}

void Connection::on_drain() {
  if (phase_ != Phase::kReading || reader_ != nullptr) return;
  // A request that is already here is answered.
  on_readable();
  if (phase_ == Phase::kReading && reader_ == nullptr) linger();
}

void Connection::abort() {
  if (exchange_ == nullptr) return close();
  const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
  close();
  stream_.reset();
  exchange->disconnect();
  loop_->exchange_closed();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  error_code ignored;
  descriptor_.close(ignored);
  loop_->remove(slot_, refused_);
}

}  // namespace atom::server
