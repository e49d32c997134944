// How long connections live: timeouts, answers from other threads, draining, stopping.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "server/http/http_server.h"
#include "server/http/http_test_server.h"

namespace atom::server {
namespace {

using std::chrono::milliseconds;

TEST(HttpServer, SlowRequestsTimeOut) {
  HttpServerOptions options;
  options.header_timeout = milliseconds(60);
  options.body_timeout = milliseconds(90);
  options.idle_timeout = milliseconds(250);
  TestServer server(options);

  TestClient header = server.connect();
  header.send("GET /hello HT");
  expect_refusal(header.read_response(), 408);
  EXPECT_TRUE(header.sees_end(milliseconds(1000)));

  TestClient body = server.connect();
  body.send("POST /echo" + std::string(kTestHost) + "Content-Length: 5\r\n\r\nab");
  expect_refusal(body.read_response(), 408);

  // A byte now and then does not help.
  TestClient drop = server.connect();
  const auto begin = std::chrono::steady_clock::now();
  std::string request = "G";
  for (int i = 0; i < 30 && drop.send(request); ++i) {
    request.resize(1, 'x');
    std::this_thread::sleep_for(milliseconds(10));
  }
  expect_refusal(drop.read_response(), 408);
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
  client.send(get_request("/later"));
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
  busy.send(get_request("/later"));
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
  busy.send(get_request("/later"));
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

TEST(HttpServer, TellsWhenTheClientHasGoneAndDropsLateAnswers) {
  TestServer server;
  TestClient client = server.connect();
  client.send(get_request("/held"));
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_FALSE(exchange->gone());
  client = server.connect();
  EXPECT_TRUE(eventually([&] { return exchange->gone().load(); }));
  exchange->respond({});

  client.send(get_request("/held"));
  const std::shared_ptr<HttpExchange> failed = server.next_held();
  ASSERT_NE(failed, nullptr);
  failed->fail({.status = 503});
  failed->respond({});
  EXPECT_EQ(client.read_response().status, 503);
}

}  // namespace
}  // namespace atom::server
