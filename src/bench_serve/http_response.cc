#include "bench_serve/http_response.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace atom::bench_serve {
namespace {

constexpr size_t kMaxFramingLine = 4096;  // chunk extensions included
constexpr size_t kMaxInterim = 16;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Whether a comma-separated header value names `token`, which is in lower case.
bool has_token(std::string_view value, std::string_view token) {
  while (!value.empty()) {
    const size_t end = std::min(value.find(','), value.size());
    if (lower(trim(value.substr(0, end))) == token) return true;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return false;
}

// Cuts the next line off, without its end.
std::string_view next_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::string_view HttpHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

void HttpResponseParser::reset() {
  state_ = State::kHead;
  head_text_.clear();
  line_.clear();
  line_taken_ = false;
  head_ = {};
  remaining_ = body_size_ = 0;
  num_interim_ = trailer_size_ = 0;
  keep_alive_ = has_excess_ = false;
}

Status HttpResponseParser::feed(std::string_view bytes, BodySink* sink) {
  while (!bytes.empty()) {
    switch (state_) {
      case State::kHead:
        RETURN_IF_ERROR(feed_head(&bytes, sink));
        break;
      case State::kLengthBody:
      case State::kUntilClose:
      case State::kChunkData:
        RETURN_IF_ERROR(feed_body(&bytes, sink));
        break;
      case State::kChunkSize:
      case State::kChunkEnd:
      case State::kTrailer:
        RETURN_IF_ERROR(feed_framing(&bytes));
        break;
      case State::kComplete:
        has_excess_ = true;
        return {};
    }
  }
  return {};
}

Status HttpResponseParser::feed_end() {
  if (state_ == State::kUntilClose) state_ = State::kComplete;
  keep_alive_ = false;
  if (state_ == State::kComplete) return {};
  if (!started()) return unavailable("the server closed the connection without an answer");
  return unavailable("the server closed the connection in the middle of its answer");
}

Status HttpResponseParser::feed_head(std::string_view* bytes, BodySink* sink) {
  // The end of the head may lie across two pieces.
  const size_t known = head_text_.size();
  const size_t take = std::min(bytes->size(), limits_.max_header_size + 1 - known);
  head_text_.append(bytes->substr(0, take));
  constexpr std::string_view kHttp = "HTTP/";
  const size_t prefix = std::min(kHttp.size(), head_text_.size());
  if (head_text_.compare(0, prefix, kHttp, 0, prefix) != 0) {
    return invalid_argument("the answer is no HTTP response");
  }
  size_t end = std::string::npos;
  for (size_t i = head_text_.find('\n', known < 3 ? 0 : known - 3); i != std::string::npos;
       i = head_text_.find('\n', i + 1)) {
    const std::string_view rest = std::string_view(head_text_).substr(i + 1);
    if (rest.starts_with('\n')) end = i + 2;
    if (rest.starts_with("\r\n")) end = i + 3;
    if (end != std::string::npos) break;
  }
  if (end == std::string::npos) {
    if (head_text_.size() > limits_.max_header_size) {
      return resource_exhausted("the answer has more than {} bytes of headers",
                                limits_.max_header_size);
    }
    bytes->remove_prefix(take);
    return {};
  }
  bytes->remove_prefix(end - known);
  head_text_.resize(end);
  RETURN_IF_ERROR(parse_head(head_text_));
  if (head_.status >= 100 && head_.status < 200) {
    if (head_.status == 101 || ++num_interim_ > kMaxInterim) {
      return invalid_argument("unexpected HTTP status {}", head_.status);
    }
    head_text_.clear();
    head_ = {};
    return {};
  }
  return choose_body(sink);
}

Status HttpResponseParser::parse_head(std::string_view text) {
  const std::string_view line = next_line(&text);
  // "HTTP/1.1 200 OK"
  const bool is_http = line.starts_with("HTTP/1.") && line.size() >= 12 && line[8] == ' ' &&
                       (line[7] == '0' || line[7] == '1');
  int status = 0;
  if (is_http) std::from_chars(line.data() + 9, line.data() + 12, status);
  if (status < 100 || status > 599) {
    return invalid_argument("'{}' is no HTTP/1.1 status line", line.substr(0, 80));
  }
  head_.status = status;
  keep_alive_ = line[7] == '1';
  while (!text.empty()) {
    const std::string_view field = next_line(&text);
    if (field.empty()) continue;
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return invalid_argument("'{}' is no HTTP header", field.substr(0, 80));
    }
    head_.headers.emplace_back(lower(trim(field.substr(0, colon))), trim(field.substr(colon + 1)));
  }
  return {};
}

Status HttpResponseParser::choose_body(BodySink* sink) {
  const std::string_view connection = head_.header("connection");
  if (has_token(connection, "close")) keep_alive_ = false;
  if (has_token(connection, "keep-alive")) keep_alive_ = true;
  sink->on_head(head_);
  if (head_.status == 204 || head_.status == 304) {
    state_ = State::kComplete;
    return {};
  }
  if (const std::string_view coding = head_.header("transfer-encoding"); !coding.empty()) {
    if (lower(coding) != "chunked") {
      return unimplemented("transfer-encoding '{}' is not supported", coding.substr(0, 80));
    }
    state_ = State::kChunkSize;
    return {};
  }
  std::string_view length;
  for (const auto& [name, value] : head_.headers) {
    if (name != "content-length") continue;
    if (!length.empty() && length != value) {
      return invalid_argument("the answer has two lengths, {} and {}", length, value);
    }
    length = value;
  }
  if (length.empty()) {
    state_ = State::kUntilClose;
    keep_alive_ = false;
    return {};
  }
  const char* end = length.data() + length.size();
  const auto [stop, error] = std::from_chars(length.data(), end, remaining_);
  if (error != std::errc() || stop != end) {
    return invalid_argument("content-length '{}' is no length", length.substr(0, 80));
  }
  state_ = remaining_ == 0 ? State::kComplete : State::kLengthBody;
  return {};
}

Status HttpResponseParser::feed_body(std::string_view* bytes, BodySink* sink) {
  const size_t take = state_ == State::kUntilClose
                          ? bytes->size()
                          : static_cast<size_t>(std::min<uint64_t>(bytes->size(), remaining_));
  body_size_ += take;
  if (body_size_ > limits_.max_body_size) {
    return resource_exhausted("the answer is larger than {} bytes", limits_.max_body_size);
  }
  const std::string_view piece = bytes->substr(0, take);
  bytes->remove_prefix(take);
  if (state_ != State::kUntilClose) {
    remaining_ -= take;
    if (remaining_ == 0) {
      state_ = state_ == State::kChunkData ? State::kChunkEnd : State::kComplete;
    }
  }
  return sink->on_body(piece);
}

Status HttpResponseParser::take_line(std::string_view* bytes,
                                     std::string_view* line,
                                     bool* complete) {
  if (line_taken_) {
    line_.clear();
    line_taken_ = false;
  }
  const void* found = std::memchr(bytes->data(), '\n', std::min(bytes->size(), kMaxFramingLine));
  const size_t size =
      found == nullptr ? bytes->size() : static_cast<const char*>(found) - bytes->data();
  if (line_.size() + size > kMaxFramingLine) {
    return invalid_argument("a line of the chunked body is longer than {} bytes", kMaxFramingLine);
  }
  *complete = found != nullptr;
  if (!*complete || !line_.empty()) {
    line_.append(*bytes, 0, size);
    *line = line_;
    line_taken_ = *complete;
  } else {
    *line = bytes->substr(0, size);
  }
  bytes->remove_prefix(size + (*complete ? 1 : 0));
  if (line->ends_with('\r')) line->remove_suffix(1);
  return {};
}

Status HttpResponseParser::feed_framing(std::string_view* bytes) {
  std::string_view line;
  bool complete = false;
  RETURN_IF_ERROR(take_line(bytes, &line, &complete));
  if (!complete) return {};
  if (state_ == State::kChunkEnd) {
    if (!line.empty()) return invalid_argument("a chunk of the body is longer than its size");
    state_ = State::kChunkSize;
    return {};
  }
  if (state_ == State::kTrailer) {
    trailer_size_ += line.size();
    if (trailer_size_ > limits_.max_header_size) {
      return resource_exhausted("the answer has more than {} bytes of trailers",
                                limits_.max_header_size);
    }
    if (line.empty()) state_ = State::kComplete;
    return {};
  }
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, remaining_, 16);
  if (error != std::errc() || (stop != end && *stop != ';' && *stop != ' ')) {
    return invalid_argument("'{}' is no size of a chunk", line.substr(0, 80));
  }
  state_ = remaining_ == 0 ? State::kTrailer : State::kChunkData;
  return {};
}

}  // namespace atom::bench_serve
