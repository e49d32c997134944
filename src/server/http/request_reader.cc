#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "server/http/http_text.h"

namespace atom::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

constexpr size_t kMaxHeaders = 100;
constexpr size_t kUsualHeaders = 8;  // room made at once
// Room made at once for a body of a declared length; what is only promised costs no more.
constexpr size_t kMaxInitialBody = 64 << 10;
// Bytes of a chunk's size line, or of the last chunk with its trailer.
constexpr size_t kMaxFraming = 8 << 10;

constexpr RequestError kBadLineEnd{400, "The request contains a line that does not end in CRLF."};
constexpr RequestError kHeadTooLarge{431, "The request line and headers are too large."};
constexpr RequestError kBodyTooLarge{413, "The request body is too large."};
constexpr RequestError kNoRoomForBody{
    429, "The server holds as many bytes of requests as it may: try again later."};

std::string_view to_std(string_view text) {
  return {text.data(), text.size()};
}

// The request-target split and decoded: origin form, absolute form, or "*" for OPTIONS.
RequestError read_target(std::string_view target, HttpRequest* request) {
  constexpr RequestError kBadTarget{400, "The request target is malformed."};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) return kBadTarget;
    target.remove_prefix(end);
    if (target.empty()) target = "/";
    break;
  }
  if (target == "*" && request->method == "OPTIONS") {
    request->path.push_back('*');
    return {};
  }
  if (target.empty() || target[0] != '/' || target.find('#') != target.npos) return kBadTarget;
  const size_t question = target.find('?');
  if (question != target.npos) request->query = target.substr(question + 1);
  std::optional<std::string> path = percent_decode(target.substr(0, question));
  if (!path) return {400, "The path contains a malformed escape or a control character."};
  request->path = std::move(*path);
  return {};
}

RequestError explain(const error_code& error) {
  if (error == http::error::body_limit) return kBodyTooLarge;
  if (error == http::error::bad_version) return {505, "Only HTTP/1.0 and HTTP/1.1 are served."};
  if (error == http::error::bad_method || error == http::error::bad_target) {
    return {400, "The request line is malformed."};
  }
  if (error == http::error::bad_content_length) {
    return {400, "Content-Length is malformed or contradicts another header."};
  }
  if (error == http::error::bad_transfer_encoding) {
    return {400, "Transfer-Encoding is malformed or contradicts another header."};
  }
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension) {
    return {400, "The chunked body is malformed."};
  }
  return {400, "A header of the request is malformed."};
}

}  // namespace

RequestError check_head_bytes(std::string_view head) {
  bool in_request_line = true;
  for (size_t i = 0; i < head.size(); ++i) {
    const auto c = static_cast<uint8_t>(head[i]);
    if (c >= 0x20 && c != 0x7f) continue;
    if (c == '\r') {
      if (i + 1 >= head.size() || head[i + 1] != '\n') return kBadLineEnd;
      ++i;
      in_request_line = false;
      if (i + 1 < head.size() && (head[i + 1] == ' ' || head[i + 1] == '\t')) {
        return {400, "Folded headers are not accepted."};
      }
    } else if (c == '\n') {
      return kBadLineEnd;
    } else if (c != '\t' || in_request_line) {
      return {400, "The request line or a header contains a control character."};
    }
  }
  return {};
}

// Beast's parser, delivering into an HttpRequest and adding what it does not refuse by itself.
class RequestReader::Parser final : public http::basic_parser<true> {
 public:
  Parser(const RequestLimits& limits, std::shared_ptr<ByteBudget> budget)
      : budget_(std::move(budget)) {
    eager(true);
    // The reader has bounded the head before it comes here.
    header_limit(std::numeric_limits<uint32_t>::max());
    body_limit(budget_ == nullptr ? limits.max_body_size
                                  : std::min(limits.max_body_size, budget_->limit()));
    request_.body_share = ByteShare(budget_);
  }

  const RequestError& error() const { return error_; }
  bool expects_continue() const { return expects_continue_; }
  HttpRequest& request() { return request_; }
  bool version_is_1_1() const { return is_http_1_1_; }

 private:
  void refuse(const RequestError& error, error_code& ec) {
    error_ = error;
    ec = http::error::bad_value;
  }

  void on_request_impl(
      http::verb, string_view method, string_view target, int version, error_code& ec) override {
    request_.method = to_std(method);
    request_.headers.reserve(kUsualHeaders);
    is_http_1_1_ = version >= 11;
    if (const RequestError error = read_target(to_std(target), &request_); error.status != 0) {
      refuse(error, ec);
    }
  }

  void on_field_impl(http::field field,
                     string_view name,
                     string_view value,
                     error_code& ec) override {
    if (is_header_done()) return;  // a trailer: nothing here uses them
    if (request_.headers.size() >= kMaxHeaders) {
      return refuse({400, "The request has more than 100 headers."}, ec);
    }
    if (field == http::field::host) {
      if (has_host_) return refuse({400, "The request has more than one Host header."}, ec);
      has_host_ = true;
    } else if (field == http::field::content_length) {
      if (has_length_ || has_encoding_) {
        return refuse({400, "The request states the length of its body more than once."}, ec);
      }
      const bool digits =
          std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (value.empty() || !digits) return refuse({400, "Content-Length is not a number."}, ec);
      has_length_ = true;
    } else if (field == http::field::transfer_encoding) {
      if (has_length_ || has_encoding_ || !is_http_1_1_) {
        return refuse({400, "The request states the length of its body more than once."}, ec);
      }
      if (!equals_ignoring_case(to_std(value), "chunked")) {
        return refuse({501, "Only the transfer encoding 'chunked' is supported."}, ec);
      }
      has_encoding_ = true;
    } else if (field == http::field::expect && is_http_1_1_) {
      if (!equals_ignoring_case(to_std(value), "100-continue")) {
        return refuse({417, "Only the expectation '100-continue' is supported."}, ec);
      }
      expects_continue_ = true;
    }
    request_.headers.emplace_back(to_std(name), to_std(value));
  }

  void on_header_impl(error_code& ec) override {
    if (is_http_1_1_ && !has_host_) refuse({400, "The request has no Host header."}, ec);
  }
  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code& ec) override {
    if (!length) return;
    declared_size_ = *length;
    make_room(std::min<uint64_t>(*length, kMaxInitialBody), ec);
  }
  size_t on_body_impl(string_view body, error_code& ec) override { return append(body, ec); }
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code& ec) override {
    return append(body, ec);
  }

  size_t append(string_view bytes, error_code& ec) {
    std::string& body = request_.body;
    const size_t size = body.size() + bytes.size();
    if (size > body.capacity()) {
      size_t capacity = std::max(size, 2 * body.capacity());
      if (declared_size_ >= size) capacity = std::min(capacity, declared_size_);
      if (!make_room(capacity, ec)) return 0;
    }
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  // The whole capacity is paid for before it is had.
  bool make_room(size_t capacity, error_code& ec) {
    if (!request_.body_share.grow_to(capacity)) {
      refuse(kNoRoomForBody, ec);
      return false;
    }
    request_.body.reserve(capacity);
    return true;
  }

  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  void on_finish_impl(error_code&) override {}

  HttpRequest request_;
  const std::shared_ptr<ByteBudget> budget_;
  size_t declared_size_ = 0;
  RequestError error_;
  bool is_http_1_1_ = false;
  bool has_host_ = false;
  bool has_length_ = false;
  bool has_encoding_ = false;
  bool expects_continue_ = false;
};

RequestReader::RequestReader(const RequestLimits& limits, std::shared_ptr<ByteBudget> budget)
    : limits_(limits), budget_(std::move(budget)) {}
RequestReader::~RequestReader() = default;

void RequestReader::fail(const RequestError& error) {
  error_ = error;
  state_ = State::kFailed;
}

size_t RequestReader::feed(std::string_view bytes) {
  size_t used = 0;
  if (state_ == State::kHead) used = feed_head(bytes);
  if (state_ == State::kBody && used < bytes.size()) used += feed_body(bytes.substr(used));
  return used;
}

size_t RequestReader::feed_head(std::string_view bytes) {
  size_t skipped = 0;
  if (pending_.empty()) {
    // Empty lines before a request are left over from sloppy clients (RFC 9112 2.2).
    while (bytes.substr(skipped, 2) == "\r\n") skipped += 2;
    bytes.remove_prefix(skipped);
    if (bytes.empty()) return skipped;
    if (bytes == "\r") {
      pending_.push_back('\r');
      return skipped + 1;
    }
  } else if (pending_ == "\r") {
    if (bytes.empty()) return 0;
    if (bytes[0] != '\n') return fail(kBadLineEnd), 0;
    pending_.clear();
    return 1 + feed_head(bytes.substr(1));
  }
  if (pending_.empty() && !is_token(bytes.substr(0, 1))) {
    return fail({400, "The request line is malformed."}), skipped;
  }

  const size_t old_size = pending_.size();
  // Beyond this many bytes a head that has not ended is too large, whatever they are: what is said
  // must not depend on how many of them came at once.
  const size_t room = limits_.max_header_size - old_size;
  size_t end;  // in `bytes`
  std::string_view head;
  if (old_size == 0) {
    const std::string_view bounded = bytes.substr(0, room);
    const size_t found = bounded.find("\r\n\r\n");
    end = found == bounded.npos ? bytes.npos : found + 4;
    head = bounded.substr(0, end);
  } else {
    pending_.append(bytes.substr(0, room));
    const size_t found = pending_.find("\r\n\r\n", old_size < 3 ? 0 : old_size - 3);
    end = found == pending_.npos ? bytes.npos : found + 4 - old_size;
    head = std::string_view(pending_).substr(0, end == bytes.npos ? bytes.npos : found + 4);
  }
  if (end == bytes.npos) {
    // Seen early: a client that ends its lines with LF would wait for the timeout.
    for (size_t i = head.find('\n', old_size); i != head.npos; i = head.find('\n', i + 1)) {
      if (i == 0 || head[i - 1] != '\r') return fail(kBadLineEnd), skipped;
    }
    if (bytes.size() >= room) return fail(kHeadTooLarge), skipped;
    if (old_size == 0) pending_ = bytes;
    return skipped + bytes.size();
  }
  parse_head(head);
  pending_ = {};
  return skipped + end;
}

bool RequestReader::parse_head(std::string_view head) {
  if (const RequestError error = check_head_bytes(head); error.status != 0) {
    fail(error);
    return false;
  }
  parser_ = std::make_unique<Parser>(limits_, budget_);
  error_code ec;
  const size_t used = parser_->put(boost::asio::buffer(head.data(), head.size()), ec);
  if (ec == http::error::need_more) ec = {};
  if (!ec && (!parser_->is_header_done() || used != head.size())) ec = http::error::bad_field;
  if (ec) {
    fail(parser_->error().status != 0 ? parser_->error() : explain(ec));
    return false;
  }
  state_ = parser_->is_done() ? State::kComplete : State::kBody;
  return true;
}

size_t RequestReader::feed_body(std::string_view bytes) {
  const size_t old_size = pending_.size();
  std::string_view input = bytes;
  if (old_size != 0) {
    pending_.append(bytes);
    input = pending_;
  }
  size_t consumed = 0;
  while (!parser_->is_done() && consumed < input.size()) {
    // The parser sees no more than it may keep waiting for: what is refused then does not depend
    // on how many bytes came at once.
    const std::string_view rest = input.substr(consumed, kMaxFraming);
    error_code ec;
    const size_t used = parser_->put(boost::asio::buffer(rest.data(), rest.size()), ec);
    consumed += used;
    if (ec == http::error::need_more) ec = {};
    if (!ec && used == 0 && rest.size() == kMaxFraming) ec = http::error::bad_chunk;
    if (ec) {
      fail(parser_->error().status != 0 ? parser_->error() : explain(ec));
      return bytes.size();
    }
    if (used == 0) break;
  }
  if (parser_->is_done()) {
    state_ = State::kComplete;
    // What was pending was not a complete request, so the end lies in `bytes`.
    CHECK(consumed >= old_size);
    pending_ = {};
    return consumed - old_size;
  }
  std::string rest(input.substr(consumed));
  pending_ = std::move(rest);
  return bytes.size();
}

bool RequestReader::is_http_1_1() const {
  return parser_->version_is_1_1();
}
bool RequestReader::keeps_alive() const {
  return parser_->keep_alive();
}
bool RequestReader::expects_continue() const {
  return parser_->expects_continue();
}

std::string_view RequestReader::request_id() const {
  if (!parser_) return {};
  const std::string_view id = parser_->request().header("X-Request-Id");
  return is_request_id(id) ? id : std::string_view{};
}

const HttpRequest& RequestReader::head() const {
  return parser_->request();
}

HttpRequest RequestReader::take_head() {
  HttpRequest request = std::move(parser_->request());
  request.body = {};
  request.body_share = {};
  return request;
}

HttpRequest RequestReader::take_request() {
  CHECK(state_ == State::kComplete);
  return std::move(parser_->request());
}

}  // namespace atom::server
