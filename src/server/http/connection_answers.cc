// How a connection writes an answer: whole, or piece by piece of its stream.
#include <chrono>
#include <optional>
#include <utility>

#include "server/http/connection.h"
#include "server/http/http_text.h"

namespace atom::server {
namespace {

// A body up to this size is copied behind the head, beyond it is written from where it is.
constexpr size_t kMaxCopiedBody = 4 << 10;
// An idle connection keeps no buffer larger than this.
constexpr size_t kMaxKeptBuffer = 1 << 10;

}  // namespace

void Connection::pump() {
  if (phase_ != Phase::kAnswering || write_waiting_) return;
  bool wrote = has_output();
  if (wrote && flush() != Flush::kDone) return;
  if (!answering_) {
    std::optional<Answer> answer = exchange_->take_answer();
    if (!answer) return;
    begin_answer(std::move(*answer));
  }
  if (stream_ != nullptr) take_piece();
  if (has_output()) {
    if (flush() != Flush::kDone) return;
    wrote = true;
  }
  if (stream_ == nullptr) return finish_response();
  if (wrote) set_time_limit(time_after(loop_->options().keep_alive_interval));
}

void Connection::begin_answer(Answer answer) {
  answering_ = true;
  const bool has_body = !is_head_ && allows_body(answer.response.status);
  if (answer.stream == nullptr) {
    chunked_ = false;
    append_head(answer.response, exchange_->request().id, BodyFraming::kLength);
    if (!has_body) return;
    if (answer.response.body.size() <= kMaxCopiedBody) {
      head_.append(answer.response.body);
    } else {
      body_ = std::move(answer.response.body);
    }
    return;
  }
  chunked_ = is_http_1_1_;
  if (!is_http_1_1_) keep_alive_ = false;  // the end of the connection ends the body
  append_head(answer.response,
              exchange_->request().id,
              chunked_ ? BodyFraming::kChunked : BodyFraming::kUntilClose);
  if (has_body) {
    stream_ = std::move(answer.stream);
  } else {
    unwanted_body_ = true;
  }
}

void Connection::append_head(const HttpResponse& response,
                             std::string_view request_id,
                             BodyFraming framing) {
  if (loop_->is_draining()) keep_alive_ = false;
  append_response_head(response,
                       {.date = loop_->date(),
                        .request_id = request_id,
                        .framing = framing,
                        .keep_alive = keep_alive_,
                        .is_http_1_1 = is_http_1_1_},
                       &head_);
}

void Connection::take_piece() {
  body_.resize(chunked_ ? kChunkHeadSize : 0);
  const BodyStream::State state = stream_->take(&body_);
  body_written_ = chunked_ ? finish_chunk(state == BodyStream::State::kEnd, &body_) : 0;
  if (state == BodyStream::State::kMore) return;
  stream_.reset();
  if (state == BodyStream::State::kBroken) {
    broken_ = true;
    keep_alive_ = false;
  }
}

void Connection::send_keep_alive() {
  set_time_limit(time_after(loop_->options().keep_alive_interval));
  const std::string_view text = stream_->keep_alive();
  if (text.empty()) return;
  body_.assign(chunked_ ? kChunkHeadSize : 0, ' ');
  body_.append(text);
  body_written_ = chunked_ ? finish_chunk(false, &body_) : 0;
  flush();
}

void Connection::finish_response() {
  const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
  if (unwanted_body_) {
    exchange->disconnect();
  } else {
    exchange->complete();
  }
  loop_->exchange_closed();
  if (peer_ended_) return close();
  if (!keep_alive_) {
    // Without chunks the end of the connection would pass for the end of the body.
    if (broken_ && !chunked_) {
      transport_.set_reset_on_close();
      return close();
    }
    return linger();
  }
  phase_ = Phase::kReading;
  release_buffer(&head_, kMaxKeptBuffer);
  release_buffer(&body_, kMaxKeptBuffer);
  set_time_limit(time_after(loop_->options().idle_timeout));
  if (!processing_) process_held_back();
}

}  // namespace atom::server
