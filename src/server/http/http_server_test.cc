// Requests and plain answers: framing, keep-alive, limits.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/http/http_test_server.h"

namespace atom::server {
namespace {

using std::chrono::milliseconds;

TEST(HttpServer, AnswersOnAKeptConnection) {
  TestServer server;
  TestClient client = server.connect();
  for (int i = 0; i < 3; ++i) {
    const TestResponse response = client.get("/hello");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"hello":1})");
    EXPECT_EQ(response.header("server"), "atom");
    EXPECT_EQ(response.header("content-type"), "application/json");
    EXPECT_EQ(response.header("connection"), "");
    EXPECT_EQ(response.header("date").size(), 29u);
    EXPECT_EQ(response.header("x-request-id").size(), 32u);
  }
  EXPECT_EQ(server->stats().num_accepted, 1u);
  EXPECT_EQ(server->stats().num_connections, 1u);
}

TEST(HttpServer, TellsTheHandlerWhatWasAsked) {
  TestServer server;
  TestClient client = server.connect();
  TestResponse response = client.get("/%69nspect?a=%20b", "X-Request-Id: my-id.1\r\n");
  EXPECT_EQ(response.header("x-method"), "GET");
  EXPECT_EQ(response.header("x-query"), "a=%20b");
  EXPECT_EQ(response.header("x-peer").compare(0, 10, "127.0.0.1:"), 0);
  EXPECT_EQ(response.header("x-id"), "my-id.1");
  EXPECT_EQ(response.header("x-request-id"), "my-id.1");
  response = client.get("/inspect", "X-Request-Id: <script>\r\n");
  EXPECT_EQ(response.header("x-request-id"), response.header("x-id"));
  EXPECT_EQ(response.header("x-id").size(), 32u);
  client.send("OPTIONS /inspect" + std::string(kTestHost) + "\r\n");
  EXPECT_EQ(client.read_response().header("x-method"), "OPTIONS");
}

TEST(HttpServer, AnswersCannotInjectOrContradictHeaders) {
  TestServer server;
  const TestResponse response = server.connect().get("/inspect");
  EXPECT_EQ(response.headers.count("x-injected"), 0u);
  EXPECT_EQ(response.header("x-bad"), "a  X-Injected: 1");
  EXPECT_EQ(response.header("content-length"), "0");
}

TEST(HttpServer, HeadAndNoContentHaveNoBody) {
  TestServer server;
  TestClient client = server.connect();
  client.send("HEAD /hello" + std::string(kTestHost) + "\r\n");
  const TestResponse head = client.read_response(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "11");
  const TestResponse nothing = client.get("/nothing");
  EXPECT_EQ(nothing.status, 204);
  EXPECT_EQ(nothing.headers.count("content-length"), 0u);
  EXPECT_EQ(nothing.headers.count("content-type"), 0u);
  EXPECT_EQ(client.get("/hello").body, R"({"hello":1})");
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  TestClient client = server.connect();
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    const std::string body = "body " + std::to_string(i);
    requests += "POST /echo" + std::string(kTestHost) +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  client.send(requests);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.read_response().body, "body " + std::to_string(i));
  }
}

TEST(HttpServer, ThePipelineWaitsForTheAnswerBefore) {
  TestServer server;
  TestClient client = server.connect();
  client.send(get_request("/later/1") + get_request("/later/2") + get_request("/hello"));
  const std::shared_ptr<HttpExchange> first = server.next_held();
  ASSERT_NE(first, nullptr);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(server.num_requests(), 1u);
  first->respond({.body = "1"});
  EXPECT_EQ(client.read_response().body, "1");
  const std::shared_ptr<HttpExchange> second = server.next_held();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->request().path, "/later/2");
  EXPECT_EQ(server.num_requests(), 2u);
  second->respond({.body = "2"});
  EXPECT_EQ(client.read_response().body, "2");
  EXPECT_EQ(client.read_response().body, R"({"hello":1})");
}

TEST(HttpServer, ReadsChunkedBodies) {
  TestServer server;
  TestClient client = server.connect();
  client.send("POST /echo" + std::string(kTestHost) + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel");
  std::this_thread::sleep_for(milliseconds(5));
  client.send("lo\r\n1;x=y\r\n");
  std::this_thread::sleep_for(milliseconds(5));
  client.send("!\r\n0\r\nX-Trailer: t\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "hello!");
  EXPECT_EQ(client.get("/hello").status, 200);
}

TEST(HttpServer, LargeBodiesGoBothWays) {
  TestServer server;
  TestClient client = server.connect();
  std::string body(5'000'000, 'x');
  for (size_t i = 0; i < body.size(); i += 1000) body[i] = static_cast<char>('a' + i / 1000 % 26);
  std::thread sender([&] {
    client.send("POST /echo" + std::string(kTestHost) + "Content-Length: 5000000\r\n\r\n" + body);
  });
  const TestResponse response = client.read_response();
  sender.join();
  EXPECT_TRUE(response.body == body);
}

TEST(HttpServer, ContinuesWhenAsked) {
  TestServer server;
  TestClient client = server.connect();
  const std::string head = "POST /echo" + std::string(kTestHost) + "Expect: 100-continue\r\n";
  client.send(head + "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 100);
  client.send("ab");
  EXPECT_EQ(client.read_response().body, "ab");

  // Refused before the client sends it.
  client.send(head + "Content-Length: 99999999999\r\n\r\n");
  expect_refusal(client.read_response(), 413);
  EXPECT_TRUE(client.sees_end());
}

TEST(HttpServer, Http10ClosesUnlessAskedToStay) {
  TestServer server;
  TestClient client = server.connect();
  client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const TestResponse kept = client.read_response();
  EXPECT_EQ(kept.header("connection"), "keep-alive");
  client.send("GET /hello HTTP/1.0\r\n\r\n");
  const TestResponse closed = client.read_response();
  EXPECT_EQ(closed.body, R"({"hello":1})");
  EXPECT_EQ(closed.header("connection"), "close");
  EXPECT_TRUE(client.sees_end());
}

TEST(HttpServer, ClosesWhenTheClientAsks) {
  TestServer server;
  TestClient client = server.connect();
  const TestResponse response = client.get("/hello", "Connection: close\r\n");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_TRUE(client.sees_end(milliseconds(1000)));
}

TEST(HttpServer, RefusesBadRequestsAndCloses) {
  TestServer server;
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET /%zz" + std::string(kTestHost) + "\r\n", 400},
      {"GET /" + std::string(kTestHost) + "X: a\x01\r\n\r\n", 400},
      {"POST /echo" + std::string(kTestHost) +
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
           get_request("/hello"),
       400},
      {"GET /" + std::string(kTestHost) + "X: " + std::string(20000, 'x') + "\r\n\r\n", 431},
      {"POST /echo" + std::string(kTestHost) + "Content-Length: 40000000\r\n\r\n", 413},
      {"GET / HTTP/3.0\r\n\r\n", 505},
  };
  for (const auto& c : cases) {
    TestClient client = server.connect();
    client.send(c.bytes);
    expect_refusal(client.read_response(), c.status);
    EXPECT_TRUE(client.sees_end(milliseconds(1000))) << c.bytes;
  }
  EXPECT_EQ(server.num_requests(), 0u);
}

// The client is still sending when the answer comes: it must be able to read it.
TEST(HttpServer, ARefusedUploadCanReadWhy) {
  HttpServerOptions options;
  options.max_body_size = 1000;
  TestServer server(options);
  for (int i = 0; i < 5; ++i) {
    TestClient client = server.connect();
    client.send("POST /echo" + std::string(kTestHost) + "Transfer-Encoding: chunked\r\n\r\n");
    client.send("300000\r\n");
    client.send(std::string(0x300000, 'x'));
    expect_refusal(client.read_response(), 413);
  }
}

TEST(HttpServer, RequestsThatAreRefusedByTheirHeadNeedNoBody) {
  TestServer server({}, [](const HttpRequest& head) { return head.header("X-Key") == "k"; });
  TestClient client = server.connect();
  const std::string head =
      "POST /inspect" + std::string(kTestHost) + "Content-Length: 30000000\r\n";
  client.send(head + "Expect: 100-continue\r\n\r\n");
  const TestResponse refused = client.read_response();
  EXPECT_EQ(refused.status, 200);  // the handler's answer, without the interim one
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_EQ(server->stats().num_buffered, 0u);

  // What is sent nevertheless is thrown away.
  TestClient stubborn = server.connect();
  stubborn.send("POST /held" + std::string(kTestHost) + "Content-Length: 30000000\r\n\r\n");
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->request().body, "");
  stubborn.send(std::string(1 << 20, 'b'));
  EXPECT_EQ(server->stats().num_buffered, 0u);
  exchange->respond({.status = 401});
  EXPECT_EQ(stubborn.read_response().status, 401);

  TestClient known = server.connect();
  known.send("POST /echo" + std::string(kTestHost) + "X-Key: k\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(known.read_response().body, "abc");
}

TEST(HttpServer, AllBodiesTogetherAreBounded) {
  HttpServerOptions options;
  options.max_buffered_bytes = 4 << 20;
  TestServer server(options);
  std::vector<TestClient> clients;
  const std::string half(2 << 20, 'b');
  for (int i = 0; i < 2; ++i) {
    clients.push_back(server.connect());
    clients.back().send("POST /echo" + std::string(kTestHost) + "Content-Length: 2097153\r\n\r\n" +
                        half);
  }
  // One of the two has had no room for its last bytes' block.
  EXPECT_TRUE(eventually([&] { return server->stats().num_buffered >= (2 << 20); }));
  EXPECT_LE(server->stats().num_buffered, options.max_buffered_bytes);
  TestClient third = server.connect();
  third.send("POST /echo" + std::string(kTestHost) + "Content-Length: 3000000\r\n\r\n" +
             std::string(3000000, 'c'));
  const TestResponse refused = third.read_response();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server->stats().num_buffered == 0; }));
  TestClient fourth = server.connect();
  fourth.send("POST /echo" + std::string(kTestHost) + "Content-Length: 3\r\n\r\nabc");
  EXPECT_EQ(fourth.read_response().body, "abc");
}

}  // namespace
}  // namespace atom::server
