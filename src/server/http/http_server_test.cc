// Requests and plain answers: framing, keep-alive, limits, timeouts.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "server/http/http_test_server.h"

namespace atom::server {
namespace {

using std::chrono::milliseconds;

constexpr const char* kHost = " HTTP/1.1\r\nHost: test\r\n";

std::string get(const std::string& path) {
  return "GET " + path + kHost + "\r\n";
}

void expect_error(const TestResponse& response, int status) {
  EXPECT_EQ(response.status, status);
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_FALSE(response.header("x-request-id").empty());
  const Result<Json> json = parse_json(response.body, "error");
  ASSERT_TRUE(json.ok()) << response.body;
  EXPECT_EQ((*json)["error"]["type"], "invalid_request_error");
  EXPECT_TRUE((*json)["error"]["message"].is_string());
}

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
  client.send("OPTIONS /inspect" + std::string(kHost) + "\r\n");
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
  client.send("HEAD /hello" + std::string(kHost) + "\r\n");
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
    requests += "POST /echo" + std::string(kHost) +
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
  client.send(get("/later/1") + get("/later/2") + get("/hello"));
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
  client.send("POST /echo" + std::string(kHost) + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel");
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
    client.send("POST /echo" + std::string(kHost) + "Content-Length: 5000000\r\n\r\n" + body);
  });
  const TestResponse response = client.read_response();
  sender.join();
  EXPECT_TRUE(response.body == body);
}

TEST(HttpServer, ContinuesWhenAsked) {
  TestServer server;
  TestClient client = server.connect();
  const std::string head = "POST /echo" + std::string(kHost) + "Expect: 100-continue\r\n";
  client.send(head + "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 100);
  client.send("ab");
  EXPECT_EQ(client.read_response().body, "ab");

  // Refused before the client sends it.
  client.send(head + "Content-Length: 99999999999\r\n\r\n");
  expect_error(client.read_response(), 413);
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
      {"GET /%zz" + std::string(kHost) + "\r\n", 400},
      {"GET /" + std::string(kHost) + "X: a\x01\r\n\r\n", 400},
      {"POST /echo" + std::string(kHost) +
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("/hello"),
       400},
      {"GET /" + std::string(kHost) + "X: " + std::string(20000, 'x') + "\r\n\r\n", 431},
      {"POST /echo" + std::string(kHost) + "Content-Length: 40000000\r\n\r\n", 413},
      {"GET / HTTP/3.0\r\n\r\n", 505},
  };
  for (const auto& c : cases) {
    TestClient client = server.connect();
    client.send(c.bytes);
    expect_error(client.read_response(), c.status);
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
    client.send("POST /echo" + std::string(kHost) + "Transfer-Encoding: chunked\r\n\r\n");
    client.send("300000\r\n");
    client.send(std::string(0x300000, 'x'));
    expect_error(client.read_response(), 413);
  }
}

TEST(HttpServer, SlowRequestsTimeOut) {
  HttpServerOptions options;
  options.header_timeout = milliseconds(60);
  options.body_timeout = milliseconds(90);
  options.idle_timeout = milliseconds(250);
  TestServer server(options);

  TestClient header = server.connect();
  header.send("GET /hello HT");
  expect_error(header.read_response(), 408);
  EXPECT_TRUE(header.sees_end(milliseconds(1000)));

  TestClient body = server.connect();
  body.send("POST /echo" + std::string(kHost) + "Content-Length: 5\r\n\r\nab");
  expect_error(body.read_response(), 408);

  // A byte now and then does not help.
  TestClient drop = server.connect();
  const auto begin = std::chrono::steady_clock::now();
  std::string request = "G";
  for (int i = 0; i < 30 && drop.send(request); ++i) {
    request.resize(1, 'x');
    std::this_thread::sleep_for(milliseconds(10));
  }
  expect_error(drop.read_response(), 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(3000));

  TestClient idle = server.connect();
  EXPECT_EQ(idle.get("/hello").status, 200);
  EXPECT_EQ(idle.read_to_end(), "");
  TestClient silent = server.connect();
  EXPECT_EQ(silent.read_to_end(), "");
  header.close();
  body.close();
  drop.close();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
}

TEST(HttpServer, WorkingOnAnAnswerIsNotIdle) {
  HttpServerOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = milliseconds(40);
  options.write_timeout = options.keep_alive_interval = milliseconds(40);
  TestServer server(options);
  TestClient client = server.connect();
  client.send(get("/later"));
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  std::this_thread::sleep_for(milliseconds(200));
  exchange->respond({.body = "done"});
  EXPECT_EQ(client.read_response().body, "done");
}

TEST(HttpServer, AnswersFromAnyThread) {
  TestServer server;
  constexpr int kClients = 8;
  constexpr int kRequests = 50;
  std::thread answering([&] {
    for (int i = 0; i < kClients * kRequests; ++i) {
      const std::shared_ptr<HttpExchange> exchange = server.next_held();
      if (exchange == nullptr) return;
      exchange->respond({.body = exchange->request().path});
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      TestClient client = server.connect();
      for (int j = 0; j < kRequests; ++j) {
        const std::string path = "/later/" + std::to_string(i) + "/" + std::to_string(j);
        EXPECT_EQ(client.get(path).body, path);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  answering.join();
  EXPECT_TRUE(server->wait_until_idle(milliseconds(5000)));
}

TEST(HttpServer, DrainingFinishesWhatIsOpen) {
  TestServer server;
  TestClient idle = server.connect();
  EXPECT_EQ(idle.get("/hello").status, 200);
  TestClient partial = server.connect();
  partial.send("GET /hello HT");
  TestClient busy = server.connect();
  busy.send(get("/later"));
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 3; }));

  server->drain();
  EXPECT_TRUE(idle.sees_end(milliseconds(2000)));
  EXPECT_FALSE(server->wait_until_idle(milliseconds(30)));
  partial.send("TP/1.1\r\nHost: test\r\n\r\n");
  const TestResponse late = partial.read_response();
  EXPECT_EQ(late.status, 200);
  EXPECT_EQ(late.header("connection"), "close");
  EXPECT_FALSE(server.connect().is_open());

  exchange->respond({.body = "done"});
  EXPECT_TRUE(server->wait_until_idle(milliseconds(5000)));
  const TestResponse response = busy.read_response();
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_TRUE(busy.sees_end(milliseconds(2000)));
}

TEST(HttpServer, StoppingClosesEverything) {
  TestServer server;
  TestClient idle = server.connect();
  EXPECT_EQ(idle.get("/hello").status, 200);
  TestClient busy = server.connect();
  busy.send(get("/later"));
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<int> num_disconnects{0};
  exchange->on_disconnect([&] { ++num_disconnects; });
  server.stop();
  EXPECT_EQ(num_disconnects, 1);
  EXPECT_TRUE(idle.sees_end());
  EXPECT_TRUE(busy.sees_end());

  // What comes after the server has ended does nothing, and keeps nothing alive.
  exchange->on_disconnect([&, exchange] { ++num_disconnects; });
  exchange->notify();
  auto stream = std::make_shared<TestStream>();
  exchange->stream({}, stream);
  EXPECT_EQ(stream.use_count(), 1);
  EXPECT_EQ(exchange.use_count(), 1);
  EXPECT_EQ(num_disconnects, 1);
}

TEST(HttpServer, RequestsThatAreRefusedByTheirHeadNeedNoBody) {
  TestServer server({}, [](const HttpRequest& head) { return head.header("X-Key") == "k"; });
  TestClient client = server.connect();
  const std::string head = "POST /inspect" + std::string(kHost) + "Content-Length: 30000000\r\n";
  client.send(head + "Expect: 100-continue\r\n\r\n");
  const TestResponse refused = client.read_response();
  EXPECT_EQ(refused.status, 200);  // the handler's answer, without the interim one
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_EQ(server->stats().num_buffered, 0u);

  // What is sent nevertheless is thrown away.
  TestClient stubborn = server.connect();
  stubborn.send("POST /held" + std::string(kHost) + "Content-Length: 30000000\r\n\r\n");
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->request().body, "");
  stubborn.send(std::string(1 << 20, 'b'));
  EXPECT_EQ(server->stats().num_buffered, 0u);
  exchange->respond({.status = 401});
  EXPECT_EQ(stubborn.read_response().status, 401);

  TestClient known = server.connect();
  known.send("POST /echo" + std::string(kHost) + "X-Key: k\r\nContent-Length: 3\r\n\r\nabc");
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
    clients.back().send("POST /echo" + std::string(kHost) + "Content-Length: 2097153\r\n\r\n" +
                        half);
  }
  // One of the two has had no room for its last bytes' block.
  EXPECT_TRUE(eventually([&] { return server->stats().num_buffered >= (2 << 20); }));
  EXPECT_LE(server->stats().num_buffered, options.max_buffered_bytes);
  TestClient third = server.connect();
  third.send("POST /echo" + std::string(kHost) + "Content-Length: 3000000\r\n\r\n" +
             std::string(3000000, 'c'));
  const TestResponse refused = third.read_response();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server->stats().num_buffered == 0; }));
  TestClient fourth = server.connect();
  fourth.send("POST /echo" + std::string(kHost) + "Content-Length: 3\r\n\r\nabc");
  EXPECT_EQ(fourth.read_response().body, "abc");
}

TEST(HttpServer, TellsWhenTheClientHasGoneAndDropsLateAnswers) {
  TestServer server;
  TestClient client = server.connect();
  client.send(get("/held"));
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_FALSE(exchange->gone());
  client = server.connect();
  EXPECT_TRUE(eventually([&] { return exchange->gone().load(); }));
  exchange->respond({});

  client.send(get("/held"));
  const std::shared_ptr<HttpExchange> failed = server.next_held();
  ASSERT_NE(failed, nullptr);
  failed->fail({.status = 503});
  failed->respond({});
  EXPECT_EQ(client.read_response().status, 503);
}

}  // namespace
}  // namespace atom::server
