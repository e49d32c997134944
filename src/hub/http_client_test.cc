#include "hub/http_client.h"

#include <gtest/gtest.h>

namespace atom::hub {
namespace {

TEST(HttpClient, RedirectsKeepTheEncryption) {
  EXPECT_TRUE(check_redirect("https://hub.example", "https://cdn.example/x?y=1").ok());
  EXPECT_TRUE(check_redirect("https://hub.example", "HTTPS://cdn.example:444/").ok());
  EXPECT_TRUE(check_redirect("http://127.0.0.1:8080", "https://cdn.example/").ok());
  EXPECT_TRUE(check_redirect("http://127.0.0.1:8080", "http://127.0.0.1:8081/").ok());
  const Status downgrade = check_redirect("https://hub.example", "http://hub.example/x");
  EXPECT_NE(downgrade.message().find("not encrypted"), std::string::npos) << downgrade.message();
  for (const char* url : {"file:///etc/passwd",
                          "ftp://hub.example/",
                          "javascript:1",
                          "//x/",
                          "",
                          "https://",
                          "https://:80/x"}) {
    EXPECT_FALSE(check_redirect("https://hub.example", url).ok()) << url;
  }
  EXPECT_FALSE(check_redirect("https://hub.example", "https://x/" + std::string(20000, 'a')).ok());
}

TEST(HttpClient, PathsAreEncoded) {
  EXPECT_EQ(encode_path("a/b-c_d.e~f", true), "a/b-c_d.e~f");
  EXPECT_EQ(encode_path("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(encode_path("a b?c#d%\n", true), "a%20b%3Fc%23d%25%0A");
}

TEST(HttpClient, EndpointsAreUrls) {
  for (const char* endpoint : {"", "hub.example", "ftp://hub.example", "https://"}) {
    HttpClientOptions options;
    options.endpoint = endpoint;
    EXPECT_FALSE(HttpClient::create(options).ok()) << endpoint;
  }
}

}  // namespace
}  // namespace atom::hub
