#include "server/http/http_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "server/http/http_message.h"

namespace atom::server {
namespace {

TEST(HttpText, PercentDecodesPaths) {
  EXPECT_EQ(percent_decode("/v1/models"), "/v1/models");
  EXPECT_EQ(percent_decode("/a%2Fb%2fc+%20"), "/a/b/c+ ");
  EXPECT_EQ(percent_decode("/%C3%A4"), "/\xc3\xa4");
  EXPECT_EQ(percent_decode(""), "");
  for (const char* bad :
       {"%", "/%", "/%2", "/%g0", "/%0g", "/%00", "/%0a", "/%7F", "/a%%20", "/\n"}) {
    EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
  }
}

TEST(HttpText, RequestIdsAreShortAndPlain) {
  EXPECT_TRUE(is_request_id("abc.DEF_1-2"));
  EXPECT_TRUE(is_request_id(std::string(128, 'a')));
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
  for (const char* bad : {"", "a b", "a\r\nb", "<a>", "\xc3\xa4", "a/b"}) {
    EXPECT_FALSE(is_request_id(bad)) << bad;
  }
  std::set<std::string> made;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = make_request_id();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_TRUE(is_request_id(id));
    EXPECT_TRUE(made.insert(id).second);
  }
}

TEST(HttpText, HeadersCannotInjectLines) {
  std::string out;
  append_header("X-A", "one\r\nX-Evil: 1\n\r\x01", &out);
  EXPECT_EQ(out, "X-A: one  X-Evil: 1   \r\n");
  for (const char* name : {"", "X A", "X:A", "X\r\n", "X\xc3"}) {
    out.clear();
    append_header(name, "value", &out);
    EXPECT_EQ(out, "") << name;
  }
}

TEST(HttpText, DateIsFixedLength) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(HttpText, ErrorIsOpenAis) {
  const Json json = parse_json(error_json(400, "wrong"), "error").value();
  EXPECT_EQ(json["error"]["message"], "wrong");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(json["error"]["param"].is_null());
  EXPECT_TRUE(json["error"]["code"].is_null());
}

TEST(HttpMessage, FindsHeadersInAnyCase) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"X-Twice", "first"}, {"x-twice", "second"}};
  EXPECT_EQ(request.header("content-type"), "a");
  EXPECT_EQ(request.header("X-TWICE"), "first");
  EXPECT_EQ(request.header("Content"), "");
}

}  // namespace
}  // namespace atom::server
