#include "server/openai/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace atom::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ApiError, EachStatusHasItsHttpStatus) {
  struct Case {
    Status status;
    int http_status;
    const char* type;
    int retry_after;
  };
  const Case cases[] = {
      {invalid_argument("m"), 400, "invalid_request_error", 0},
      {unimplemented("m"), 400, "invalid_request_error", 0},
      {not_found("m"), 404, "invalid_request_error", 0},
      {resource_exhausted("m"), 429, "rate_limit_error", 1},
      {unavailable("m"), 503, "service_unavailable", 1},
      {Status(StatusCode::kAborted, "m"), 503, "service_unavailable", 1},
      {internal_error("m"), 500, "internal_error", 0},
  };
  for (const Case& test : cases) {
    const ApiError error = to_api_error(test.status);
    EXPECT_EQ(error.http_status, test.http_status) << status_code_name(test.status.code());
    EXPECT_EQ(error.type, test.type);
    EXPECT_EQ(error.retry_after, test.retry_after);
    EXPECT_EQ(error.message, "m");
    EXPECT_NE(error.code, "");
  }
  EXPECT_EQ(to_request_error(resource_exhausted("a template limit")).http_status, 400);
  EXPECT_EQ(to_request_error(unavailable("m")).http_status, 503);
}

TEST(ApiError, TheBodyIsOpenAis) {
  ApiError error = model_not_found("x\xff\n");
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error_json(error),
            R"({"error":{"message":"the model 'x\\xff\\n' does not exist; GET /v1/models lists )"
            R"(those served","type":"invalid_request_error","param":"model",)"
            R"("code":"model_not_found"}})");
  error = ApiError();
  error.message = "\xff raw";
  const OrderedJson body = OrderedJson::parse(error_json(error));
  EXPECT_TRUE(body["error"]["param"].is_null());
  EXPECT_TRUE(body["error"]["code"].is_null());
}

TEST(ApiError, TheResponseCarriesRetryAfter) {
  const HttpResponse busy = error_response(to_api_error(resource_exhausted("m")));
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.content_type, "application/json");
  EXPECT_THAT(busy.headers, ElementsAre(Pair("Retry-After", "1")));
  EXPECT_TRUE(error_response(to_api_error(internal_error("m"))).headers.empty());
}

TEST(ApiError, PrintableTextIsValidAndBounded) {
  EXPECT_EQ(printable("a\tb\xC3\xA9\xC3", 100), "a\\x09b\xC3\xA9\\xc3");
  EXPECT_EQ(printable("\xED\xA0\x80", 100), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xC0\xAF", 100), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xF4\x90\x80\x80", 100), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(printable("\xF0\x9F\x98\x80", 100), "\xF0\x9F\x98\x80");
  EXPECT_EQ(printable("\xC3\xA9\xC3\xA9\xC3\xA9", 3), "\xC3\xA9\xC3\xA9...");
  EXPECT_EQ(to_api_error(invalid_argument("{}", std::string(100000, 'x'))).message.size(), 2003u);
}

}  // namespace
}  // namespace atom::server
