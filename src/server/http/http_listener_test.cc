// Where the server listens, TLS, and many connections.
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/http_test_server.h"

namespace atom::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options) {
  return HttpServer::start(options, [](std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({.body = exchange->request().peer});
  });
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "http_testXXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// A key and a certificate that it has signed itself.
void write_certificate(const std::string& certificate_file, const std::string& key_file) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  FILE* file = std::fopen(certificate_file.c_str(), "w");
  CHECK(PEM_write_X509(file, certificate) == 1);
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  CHECK(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

class HttpTls : public testing::Test {
 protected:
  void SetUp() override {
    write_certificate(folder_.file("certificate.pem"), folder_.file("key.pem"));
    options_.tls_certificate_file = folder_.file("certificate.pem");
    options_.tls_key_file = folder_.file("key.pem");
  }

  TemporaryFolder folder_;
  HttpServerOptions options_;
};

TEST(HttpListener, ListensOnHosts) {
  const struct {
    const char* host;
    std::vector<const char*> clients;
  } cases[] = {
      {"127.0.0.1", {"127.0.0.1"}},
      {"0.0.0.0", {"127.0.0.1"}},
      {"localhost", {"127.0.0.1"}},
      {"::1", {"::1"}},
      {"::", {"::1", "127.0.0.1"}},
  };
  for (const auto& c : cases) {
    HttpServerOptions options;
    options.host = c.host;
    options.port = 0;
    auto server = start(options);
    if (!server.ok() && std::string(c.host).find(':') != std::string::npos) {
      continue;  // no IPv6 here
    }
    ASSERT_TRUE(server.ok()) << server.status().message();
    EXPECT_NE((*server)->port(), 0);
    for (const char* address : c.clients) {
      TestClient client = TestClient::to_port((*server)->port(), address);
      const TestResponse response = client.get("/");
      EXPECT_EQ(response.status, 200) << c.host;
      const std::string begin =
          std::string(address) == "::1" ? "[::1]:" : std::string(address) + ":";
      EXPECT_EQ(response.body.substr(0, begin.size()), begin);
    }
  }
}

TEST(HttpListener, SaysWhatItCannotListenOn) {
  HttpServerOptions options;
  options.port = 0;
  auto first = start(options);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto second = start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("127.0.0.1:" + std::to_string(options.port)),
            std::string::npos)
      << second.status().message();
  EXPECT_NE(second.status().message().find("Address already in use"), std::string::npos);

  // The port is free again at once, though connections were open.
  TestClient client = TestClient::to_port(options.port);
  EXPECT_EQ(client.get("/").status, 200);
  std::move(first).value().reset();
  EXPECT_TRUE(start(options).ok());

  options.host = "192.0.2.1";
  EXPECT_NE(start(options).status().message().find("192.0.2.1:"), std::string::npos);
}

TEST(HttpListener, UnixSocket) {
  const TemporaryFolder folder;
  HttpServerOptions options;
  options.unix_socket = folder.file("socket");
  {
    auto server = start(options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    EXPECT_EQ(TestClient::to_unix(options.unix_socket).get("/").body, "unix");
    const auto second = start(options);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.status().message().find(options.unix_socket), std::string::npos);
    EXPECT_EQ(TestClient::to_unix(options.unix_socket).get("/").body, "unix");
  }
  EXPECT_FALSE(fs::exists(options.unix_socket));
}

TEST(HttpListener, OnlyAStaleUnixSocketIsReplaced) {
  const TemporaryFolder folder;
  HttpServerOptions options;
  options.unix_socket = folder.file("socket");
  {
    // A server that ends without removing its file.
    auto server = start(options);
    ASSERT_TRUE(server.ok());
    fs::rename(options.unix_socket, folder.file("kept"));
  }
  fs::rename(folder.file("kept"), options.unix_socket);
  {
    auto server = start(options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    EXPECT_EQ(TestClient::to_unix(options.unix_socket).get("/").body, "unix");
  }
  std::ofstream(options.unix_socket) << "precious";
  EXPECT_FALSE(start(options).ok());
  EXPECT_TRUE(fs::exists(options.unix_socket));
  options.unix_socket = folder.file(std::string(200, 'x'));
  EXPECT_FALSE(start(options).ok());
}

TEST_F(HttpTls, ServesAndStreams) {
  TestServer server(options_);
  TestClient client = TestClient::with_tls(server.port());
  ASSERT_TRUE(client.is_open());
  EXPECT_EQ(client.get("/hello").body, R"({"hello":1})");
  EXPECT_EQ(client.get("/large").body.size(), 8u << 20);
  const std::string body(3 << 20, 'b');
  std::thread sender([&] {
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
  });
  sender.join();
  EXPECT_TRUE(client.read_response().body == body);

  client.send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\nGET /hello HTTP/1.1\r\nHost: t\r\n\r\n");
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  auto stream = std::make_shared<TestStream>();
  exchange->stream({}, stream);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    stream->append(std::to_string(i));
    expected += std::to_string(i);
    exchange->notify();
  }
  stream->end();
  exchange->notify();
  EXPECT_EQ(client.read_response().body, expected);
  EXPECT_EQ(client.read_response().body, R"({"hello":1})");
}

TEST_F(HttpTls, SeesDisconnects) {
  TestServer server(options_);
  for (const bool by_reset : {false, true}) {
    TestClient client = TestClient::with_tls(server.port());
    ASSERT_TRUE(client.is_open());
    client.send("GET /later HTTP/1.1\r\nHost: t\r\n\r\n");
    const std::shared_ptr<HttpExchange> exchange = server.next_held();
    ASSERT_NE(exchange, nullptr);
    std::atomic<int> num_disconnects{0};
    exchange->on_disconnect([&] { ++num_disconnects; });
    by_reset ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return num_disconnects == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
}

TEST_F(HttpTls, ClosesWhatIsNotTls) {
  options_.header_timeout = milliseconds(100);
  TestServer server(options_);
  TestClient plain = server.connect();
  plain.send("GET /hello HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(plain.sees_end());
  TestClient garbage = server.connect();
  garbage.send(std::string("\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff", 10));
  EXPECT_TRUE(garbage.sees_end());
  TestClient silent = server.connect();
  EXPECT_TRUE(silent.sees_end());
  TestClient slow = server.connect();
  slow.send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  EXPECT_TRUE(slow.sees_end());
  EXPECT_EQ(server.num_requests(), 0u);
  EXPECT_EQ(TestClient::with_tls(server.port()).get("/hello").status, 200);
}

TEST_F(HttpTls, BadFilesAreNamed) {
  HttpServerOptions options = options_;
  options.port = 0;
  options.tls_certificate_file = folder_.file("absent.pem");
  EXPECT_NE(start(options).status().message().find("absent.pem"), std::string::npos);
  options = options_;
  options.tls_key_file = folder_.file("other.pem");
  std::ofstream(options.tls_key_file) << "not a key";
  EXPECT_NE(start(options).status().message().find("other.pem"), std::string::npos);
  write_certificate(folder_.file("unused.pem"), options.tls_key_file);
  EXPECT_NE(start(options).status().message().find("other.pem"), std::string::npos);
  options.tls_key_file = "";
  EXPECT_FALSE(start(options).ok());
}

TEST_F(HttpTls, TakesNoSuiteWithoutForwardSecrecyAndAuthenticatedEncryption) {
  TestServer server(options_);
  for (const char* suite : {"ECDHE-ECDSA-AES128-SHA",
                            "ECDHE-ECDSA-AES128-SHA256",
                            "ECDHE-ECDSA-AES256-SHA384",
                            "AES128-SHA",
                            "AES256-GCM-SHA384"}) {
    EXPECT_FALSE(TestClient::with_tls(server.port(), suite).is_open()) << suite;
  }
  for (const char* suite : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"}) {
    TestClient client = TestClient::with_tls(server.port(), suite);
    ASSERT_TRUE(client.is_open()) << suite;
    EXPECT_EQ(client.get("/hello").status, 200);
  }
}

TEST_F(HttpTls, CertificatesCanBeRenewedWhileItServes) {
  TestServer server(options_);
  TestClient old = TestClient::with_tls(server.port());
  const std::string before = old.certificate();
  std::ofstream(options_.tls_key_file) << "not a key";
  EXPECT_FALSE(server->reload_tls().ok());
  EXPECT_EQ(TestClient::with_tls(server.port()).certificate(), before);
  write_certificate(options_.tls_certificate_file, options_.tls_key_file);
  EXPECT_TRUE(server->reload_tls().ok());
  EXPECT_TRUE(
      eventually([&] { return TestClient::with_tls(server.port()).certificate() != before; }));
  EXPECT_EQ(old.get("/hello").status, 200);
}

TEST(HttpConnections, TooManyAreRefused) {
  HttpServerOptions options;
  options.max_connections = 3;
  TestServer server(options);
  std::vector<TestClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(server.connect());
    EXPECT_EQ(clients.back().get("/hello").status, 200);
  }
  for (int i = 0; i < 3; ++i) {
    TestClient refused = server.connect();
    refused.send("GET /hello HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_EQ(refused.read_response().status, 503);
    EXPECT_TRUE(refused.sees_end());
  }
  EXPECT_EQ(server->stats().num_refused, 3u);
  EXPECT_EQ(server->stats().num_connections, 3u);
  EXPECT_EQ(clients[0].get("/hello").status, 200);
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 2; }));
  EXPECT_EQ(server.connect().get("/hello").status, 200);
}

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &saved_);
    rlimit lowered = saved_;
    lowered.rlim_cur = std::min(limit, saved_.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &lowered);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &saved_); }

 private:
  rlimit saved_{};
};

TEST(HttpConnections, TheLimitOfDescriptorsIsRaised) {
  const DescriptorLimit restored(64);
  const TestServer server;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(HttpConnections, RunningOutOfDescriptorsIsSurvived) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs descriptors itself to check virtual calls";
#endif
  TestServer server;
  TestClient first = server.connect();
  EXPECT_EQ(first.get("/hello").status, 200);
  TestClient waiting = server.connect();
  EXPECT_EQ(waiting.get("/hello").status, 200);
  TestClient late = TestClient(-1);
  {
    const int highest = ::dup(0);
    // Room for the client's own socket and no more.
    const DescriptorLimit limit(static_cast<rlim_t>(highest) + 1);
    ::close(highest);
    late = server.connect();
    ASSERT_TRUE(late.is_open());
    late.send("GET /hello HTTP/1.1\r\nHost: t\r\n\r\n");
    const std::clock_t begin = std::clock();
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 10);  // it does not spin
    EXPECT_EQ(first.get("/hello").status, 200);
    EXPECT_EQ(server->stats().num_accepted, 2u);
  }
  EXPECT_EQ(late.read_response().status, 200);
}

size_t resident_size() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::getpagesize());
}

TEST(HttpConnections, IdleOnesAreCheap) {
  TestServer server;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const size_t number = std::min<size_t>(9000, (limit.rlim_cur - 200) / 2);
  std::vector<TestClient> clients;
  clients.reserve(number);
  EXPECT_EQ(server.connect().get("/hello").status, 200);
  ::malloc_trim(0);  // room left by other tests would hide what this one takes
  const size_t before = resident_size();
  for (size_t i = 0; i < number; ++i) {
    clients.push_back(server.connect());
    ASSERT_TRUE(clients.back().is_open());
  }
  ASSERT_TRUE(eventually([&] { return server->stats().num_connections >= number; }));
  const size_t fresh = (resident_size() - before) / number;
  // And after each has been used once.
  for (TestClient& client : clients) ASSERT_EQ(client.get("/hello").status, 200);
  const size_t used = (resident_size() - before) / number;
  RecordProperty("bytes_per_fresh_connection", static_cast<int>(fresh));
  RecordProperty("bytes_per_used_connection", static_cast<int>(used));
  std::printf("%zu idle connections: %zu bytes each, %zu after a request\n", number, fresh, used);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(fresh, 8u << 10);
  EXPECT_LT(used, 8u << 10);
#endif
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
}

}  // namespace
}  // namespace atom::server
