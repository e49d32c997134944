#include "server/http/response_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "server/http/http_text.h"

namespace atom::server {
namespace {

bool is_own_header(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOwn = {"Content-Length",
                                                           "Transfer-Encoding",
                                                           "Connection",
                                                           "Content-Type",
                                                           "Server",
                                                           "Date",
                                                           "X-Request-Id",
                                                           "Trailer"};
  return std::any_of(kOwn.begin(), kOwn.end(), [&](std::string_view own) {
    return equals_ignoring_case(own, name);
  });
}

void append_number(uint64_t number, std::string* out) {
  std::array<char, 20> digits;
  out->append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

}  // namespace

bool allows_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

void append_response_head(const HttpResponse& response, const HeadFacts& facts, std::string* out) {
  out->append("HTTP/1.1 ");
  append_number(static_cast<uint64_t>(response.status), out);
  out->append(" ").append(reason_phrase(response.status));
  out->append("\r\nServer: atom\r\nDate: ").append(facts.date);
  out->append("\r\nX-Request-Id: ").append(facts.request_id).append("\r\n");
  if (!response.content_type.empty()) append_header("Content-Type", response.content_type, out);
  if (allows_body(response.status)) {
    if (facts.framing == BodyFraming::kLength) {
      out->append("Content-Length: ");
      append_number(response.body.size(), out);
      out->append("\r\n");
    } else if (facts.framing == BodyFraming::kChunked) {
      out->append("Transfer-Encoding: chunked\r\n");
    }
  }
  if (!facts.keep_alive) {
    out->append("Connection: close\r\n");
  } else if (!facts.is_http_1_1) {
    out->append("Connection: keep-alive\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    if (!is_own_header(name)) append_header(name, value, out);
  }
  out->append("\r\n");
}

size_t finish_chunk(bool is_last, std::string* buffer) {
  const size_t size = buffer->size() - kChunkHeadSize;
  if (size == 0) {
    buffer->assign(is_last ? "0\r\n\r\n" : "");
    return 0;
  }
  char digits[16];
  char* const end = std::to_chars(digits, digits + sizeof(digits), size, 16).ptr;
  const size_t begin = kChunkHeadSize - 2 - static_cast<size_t>(end - digits);
  std::copy(digits, end, buffer->begin() + static_cast<std::ptrdiff_t>(begin));
  (*buffer)[kChunkHeadSize - 2] = '\r';
  (*buffer)[kChunkHeadSize - 1] = '\n';
  buffer->append(is_last ? "\r\n0\r\n\r\n" : "\r\n");
  return begin;
}

}  // namespace atom::server
