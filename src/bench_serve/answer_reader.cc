#include "bench_serve/answer_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace atom::bench_serve {
namespace {

constexpr size_t kMaxWholeBody = 64 << 20;  // bytes of an answer that is no stream
constexpr size_t kMaxErrorText = 400;       // bytes kept of an error
constexpr int64_t kMaxTokenEvents = 16 << 20;
constexpr JsonLimits kEventLimits = {
    .max_bytes = SseParser::kMaxEventSize, .max_depth = 32, .max_nodes = 1'000'000};

std::string shortened(std::string_view text) {
  std::string result(text.substr(0, kMaxErrorText));
  if (text.size() > kMaxErrorText) result += "...";
  return result;
}

// The message of {"error": {"message": ...}}, {"error": "..."} or {"message": ...}, else empty.
std::string error_message(const Json& json) {
  if (!json.is_object()) return {};
  const auto error = json.find("error");
  if (error != json.end() && error->is_string()) return error->get<std::string>();
  const Json& holder = error != json.end() && error->is_object() ? *error : json;
  for (const char* key : {"message", "detail"}) {
    const auto message = holder.find(key);
    if (message != holder.end() && message->is_string()) return message->get<std::string>();
  }
  return {};
}

std::string message_in_text(std::string_view text) {
  const Result<Json> json = parse_json(text, "answer", kEventLimits);
  std::string message = json.ok() ? error_message(*json) : std::string();
  return shortened(message.empty() ? text : std::string_view(message));
}

int64_t usage_field(const Json& json, const char* name) {
  const auto usage = json.find("usage");
  if (usage == json.end() || !usage->is_object()) return -1;
  const auto field = usage->find(name);
  if (field == usage->end() || !field->is_number_unsigned()) return -1;
  const auto value = field->get<uint64_t>();
  return value <= INT32_MAX ? static_cast<int64_t>(value) : -1;
}

}  // namespace

const char* error_kind_name(ErrorKind kind) {
  constexpr const char* kNames[kNumErrorKinds] = {"none",
                                                  "connect",
                                                  "http_status",
                                                  "timeout",
                                                  "cut",
                                                  "malformed",
                                                  "reported",
                                                  "empty",
                                                  "cancelled"};
  return kNames[static_cast<int>(kind)];
}

void AnswerReader::start(bool streamed) {
  parser_.reset();
  events_.reset();
  answer_ = {};
  body_.clear();
  streamed_ = streamed;
  is_event_stream_ = is_final_ = finished_ = broken_ = false;
  is_first_event_ = true;
}

void AnswerReader::feed(std::string_view bytes, double now) {
  now_ = now;
  if (broken_) return;
  const Status status = parser_.feed(bytes, this);
  if (!status.ok()) {
    broken_ = true;
    fail(ErrorKind::kMalformed, status.message(), now);
  } else if (parser_.complete()) {
    end_of_message();
  }
}

void AnswerReader::feed_end(double now) {
  now_ = now;
  if (broken_) return;
  if (const Status status = parser_.feed_end(); !status.ok()) {
    broken_ = true;
    fail(ErrorKind::kCut, status.message(), now);
    return;
  }
  end_of_message();
}

void AnswerReader::fail(ErrorKind kind, std::string message, double now) {
  if (finished_) return;
  answer_.error_kind = kind;
  answer_.error = shortened(message);
  now_ = now;
  finish();
}

void AnswerReader::finish() {
  finished_ = true;
  answer_.end = now_;
}

void AnswerReader::on_head(const HttpHead& head) {
  answer_.http_status = head.status;
  is_event_stream_ = streamed_ && head.status < 300 &&
                     head.header("content-type").starts_with("text/event-stream");
}

Status AnswerReader::on_body(std::string_view piece) {
  if (is_event_stream_) {
    return events_.feed(
        piece, [this](std::string_view data, bool is_error) { return on_event(data, is_error); });
  }
  if (body_.size() + piece.size() > kMaxWholeBody) {
    return resource_exhausted("the answer is larger than {} bytes", kMaxWholeBody);
  }
  body_ += piece;
  return {};
}

void AnswerReader::note_token() {
  if (answer_.first_token < 0) {
    answer_.first_token = now_;
  } else {
    answer_.gaps.push_back(static_cast<float>(now_ - answer_.last_token));
  }
  answer_.last_token = now_;
  ++answer_.num_token_events;
}

Status AnswerReader::on_event(std::string_view data, bool is_error) {
  if (finished_) return {};
  if (is_error) {
    fail(ErrorKind::kReported, message_in_text(data), now_);
    return {};
  }
  if (data == "[DONE]") {
    if (answer_.first_token < 0) {
      fail(ErrorKind::kEmpty, "the stream ended without a token", now_);
    } else {
      finish();
    }
    return {};
  }
  const StreamEvent event = scan_event(data);
  if (is_first_event_ || event.may_be_error) {
    const Result<Json> json = parse_json(data, "event", kEventLimits);
    if (!json.ok()) return json.status();
    if (json->is_object() && json->contains("error") && !json->at("error").is_null()) {
      fail(ErrorKind::kReported, shortened(error_message(*json)), now_);
      return {};
    }
    is_first_event_ = false;
  }
  if (!event.is_object) {
    return invalid_argument("'{}' is no event of a completion", data.substr(0, 80));
  }
  if (event.prompt_tokens) answer_.prompt_tokens = *event.prompt_tokens;
  if (event.completion_tokens) answer_.completion_tokens = *event.completion_tokens;
  is_final_ |= event.is_final;
  // An answer whose only token is its end has no text, but a time.
  if (event.carries_token || (event.is_final && answer_.first_token < 0)) note_token();
  if (answer_.num_token_events > kMaxTokenEvents) {
    return resource_exhausted("the stream has more than {} tokens", kMaxTokenEvents);
  }
  return {};
}

void AnswerReader::end_of_message() {
  if (finished_) return;
  if (answer_.http_status >= 300) {
    fail_with_body();
    return;
  }
  if (!is_event_stream_) {
    read_whole_body();
    return;
  }
  const Status status = events_.finish(
      [this](std::string_view data, bool is_error) { return on_event(data, is_error); });
  if (!status.ok()) {
    fail(ErrorKind::kMalformed, status.message(), now_);
  } else if (!finished_ && answer_.first_token < 0) {
    fail(ErrorKind::kEmpty, "the stream ended without a token", now_);
  } else if (!finished_ && !is_final_) {
    fail(ErrorKind::kCut, "the stream ended without [DONE]", now_);
  } else if (!finished_) {
    finish();
  }
}

void AnswerReader::fail_with_body() {
  const std::string message = body_.empty() ? "no message" : message_in_text(body_);
  fail(ErrorKind::kStatus, fmt::format("HTTP {}: {}", answer_.http_status, message), now_);
}

void AnswerReader::read_whole_body() {
  const Result<Json> json = parse_json(body_, "answer");
  if (!json.ok()) {
    fail(ErrorKind::kMalformed, json.status().message(), now_);
    return;
  }
  if (!json->is_object() || !json->contains("choices")) {
    const bool is_error = json->is_object() && json->contains("error");
    fail(is_error ? ErrorKind::kReported : ErrorKind::kMalformed,
         is_error ? error_message(*json) : "the answer has no choices",
         now_);
    return;
  }
  answer_.prompt_tokens = usage_field(*json, "prompt_tokens");
  answer_.completion_tokens = usage_field(*json, "completion_tokens");
  finish();
}

}  // namespace atom::bench_serve
