#include "server/http/response_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace atom::server {
namespace {

std::string head(const HttpResponse& response, BodyFraming framing, bool keep_alive = true) {
  std::string out;
  append_response_head(
      response,
      {.date = "now", .request_id = "id", .framing = framing, .keep_alive = keep_alive},
      &out);
  return out;
}

TEST(ResponseWriter, HeadOfAWholeAnswer) {
  HttpResponse response;
  response.status = 429;
  response.body = "body";
  response.headers = {{"Retry-After", "1"}, {"content-length", "9"}, {"bad name", "x"}};
  EXPECT_EQ(head(response, BodyFraming::kLength),
            "HTTP/1.1 429 Too Many Requests\r\nServer: atom\r\nDate: now\r\nX-Request-Id: id\r\n"
            "Content-Type: application/json\r\nContent-Length: 4\r\nRetry-After: 1\r\n\r\n");
}

TEST(ResponseWriter, HeadOfAStream) {
  HttpResponse response;
  response.content_type = "text/event-stream\r\nX: y";
  EXPECT_EQ(head(response, BodyFraming::kChunked),
            "HTTP/1.1 200 OK\r\nServer: atom\r\nDate: now\r\nX-Request-Id: id\r\n"
            "Content-Type: text/event-stream  X: y\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(head(response, BodyFraming::kUntilClose, false).find("Transfer-Encoding"),
            std::string::npos);
  EXPECT_NE(head(response, BodyFraming::kUntilClose, false).find("Connection: close\r\n"),
            std::string::npos);
}

TEST(ResponseWriter, NoBodyNoLength) {
  HttpResponse response;
  response.status = 204;
  response.content_type = "";
  EXPECT_EQ(head(response, BodyFraming::kLength),
            "HTTP/1.1 204 No Content\r\nServer: atom\r\nDate: now\r\nX-Request-Id: id\r\n\r\n");
}

TEST(ResponseWriter, Chunks) {
  const auto chunk = [](const std::string& piece, bool is_last) {
    std::string buffer = std::string(kChunkHeadSize, ' ') + piece;
    const size_t begin = finish_chunk(is_last, &buffer);
    return buffer.substr(begin);
  };
  EXPECT_EQ(chunk("", false), "");
  EXPECT_EQ(chunk("", true), "0\r\n\r\n");
  EXPECT_EQ(chunk("abc", false), "3\r\nabc\r\n");
  EXPECT_EQ(chunk("abc", true), "3\r\nabc\r\n0\r\n\r\n");
  EXPECT_EQ(chunk(std::string(0x1a2b3, 'x'), false).substr(0, 8), "1a2b3\r\nx");
}

}  // namespace
}  // namespace atom::server
