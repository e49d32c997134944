// Streams, clients that go away, clients that are slow.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "server/http/http_server.h"
#include "server/http/http_test_server.h"

namespace atom::server {
namespace {

using std::chrono::milliseconds;

constexpr const char* kRequest = "GET /stream HTTP/1.1\r\nHost: test\r\n\r\n";

// A client whose request is being streamed to.
struct Streaming {
  explicit Streaming(TestServer& server, const std::string& request = kRequest)
      : client(server.connect()) {
    client.send(request);
    exchange = server.next_held();
    CHECK(exchange != nullptr);
    exchange->on_disconnect([this] { ++num_disconnects; });
  }
  void start() { exchange->stream({.content_type = "text/event-stream"}, stream); }
  void write(std::string_view text) {
    stream->append(text);
    exchange->notify();
  }
  void end(BodyStream::State state = BodyStream::State::kEnd) {
    stream->end(state);
    exchange->notify();
  }
  bool sees_disconnect() {
    return eventually([this] { return num_disconnects > 0; }) && num_disconnects == 1;
  }

  std::shared_ptr<TestStream> stream = std::make_shared<TestStream>();
  std::atomic<int> num_disconnects{0};
  TestClient client;
  std::shared_ptr<HttpExchange> exchange;
};

TEST(HttpStream, SendsPiecesAsTheyCome) {
  TestServer server;
  Streaming streaming(server);
  streaming.exchange->notify();  // nothing to notify of yet
  streaming.write("one");
  streaming.start();
  EXPECT_NE(streaming.client.receive().find("3\r\none\r\n"), std::string::npos);
  streaming.write("two");
  EXPECT_EQ(streaming.client.receive(), "3\r\ntwo\r\n");
  streaming.write(std::string(300, 'x'));
  EXPECT_EQ(streaming.client.receive(), "12c\r\n" + std::string(300, 'x') + "\r\n");
  streaming.stream->append("end");
  streaming.end();
  EXPECT_EQ(streaming.client.receive(), "3\r\nend\r\n0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server->stats().num_exchanges == 0; }));
  EXPECT_EQ(streaming.stream.use_count(), 1);
  EXPECT_EQ(streaming.client.get("/hello").status, 200);
  streaming.client.close();
  streaming.exchange->notify();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
  EXPECT_EQ(streaming.num_disconnects, 0);
}

TEST(HttpStream, HeadIsSentBeforeTheFirstPiece) {
  TestServer server;
  Streaming streaming(server);
  streaming.start();
  const std::string head = streaming.client.receive();
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Content-Length"), std::string::npos);
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  streaming.end();
  EXPECT_EQ(streaming.client.receive(), "0\r\n\r\n");
}

TEST(HttpStream, ManyWritersLoseNothing) {
  TestServer server;
  constexpr int kStreams = 16;
  constexpr int kPieces = 2000;
  std::vector<std::unique_ptr<Streaming>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<Streaming>(server));
    streams.back()->start();
  }
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kPieces; ++i) {
        for (int s = w; s < kStreams; s += 2) streams[s]->write(std::to_string(i) + ",");
      }
      for (int s = w; s < kStreams; s += 2) streams[s]->end();
    });
  }
  std::string expected;
  for (int i = 0; i < kPieces; ++i) expected += std::to_string(i) + ",";
  for (auto& stream : streams) {
    const TestResponse response = stream->client.read_response();
    EXPECT_TRUE(response.is_complete);
    EXPECT_TRUE(response.body == expected);
  }
  for (std::thread& writer : writers) writer.join();
}

TEST(HttpStream, Http10StreamsUntilTheEnd) {
  TestServer server;
  Streaming streaming(server, "GET /stream HTTP/1.0\r\n\r\n");
  streaming.start();
  streaming.write("one");
  streaming.stream->append("two");
  streaming.end();
  const TestResponse response = streaming.client.read_response();
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(response.body, "onetwo");
}

TEST(HttpStream, ABrokenStreamDoesNotLookComplete) {
  TestServer server;
  Streaming streaming(server);
  streaming.start();
  streaming.stream->append("half");
  streaming.end(BodyStream::State::kBroken);
  const TestResponse response = streaming.client.read_response();
  EXPECT_EQ(response.body, "half");
  EXPECT_FALSE(response.is_complete);
  EXPECT_TRUE(streaming.client.sees_end());
  EXPECT_EQ(streaming.num_disconnects, 0);

  // Without chunks only a reset says so.
  Streaming old(server, "GET /stream HTTP/1.0\r\n\r\n");
  old.start();
  EXPECT_NE(old.client.receive(), "");
  old.end(BodyStream::State::kBroken);
  char byte;
  EXPECT_EQ(::recv(old.client.fd(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(HttpStream, HeadDoesNotStream) {
  TestServer server;
  Streaming streaming(server, "HEAD /stream HTTP/1.1\r\nHost: test\r\n\r\n");
  streaming.start();
  const TestResponse response = streaming.client.read_response(true);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(streaming.sees_disconnect());  // nobody takes the body
  EXPECT_EQ(streaming.stream->num_takes(), 0u);
  EXPECT_EQ(streaming.client.get("/hello").status, 200);
}

TEST(HttpStream, SilentStreamsAreKeptAlive) {
  HttpServerOptions options;
  options.keep_alive_interval = milliseconds(30);
  TestServer server(options);
  Streaming streaming(server);
  streaming.start();
  EXPECT_NE(streaming.client.receive(), "");
  EXPECT_EQ(streaming.client.receive(9 + 5), "8\r\n: ping\n\n\r\n");
  streaming.stream->append("text");
  streaming.end();
  std::string rest;
  while (rest.find("4\r\ntext\r\n0\r\n\r\n") == rest.npos) {
    const std::string more = streaming.client.receive();
    ASSERT_NE(more, "") << rest;
    rest += more;
  }
}

TEST(HttpDisconnect, IsSeenAtOnce) {
  TestServer server;
  for (const bool started : {false, true}) {
    for (const bool by_reset : {false, true}) {
      Streaming streaming(server);
      if (started) {
        streaming.start();
        EXPECT_NE(streaming.client.receive(), "");
      }
      const auto begin = std::chrono::steady_clock::now();
      by_reset ? streaming.client.reset() : streaming.client.close();
      EXPECT_TRUE(streaming.sees_disconnect()) << started << by_reset;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
      EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
      EXPECT_TRUE(server->wait_until_idle(milliseconds(5000)));
      // Nothing is taken any more, and answers go nowhere.
      const size_t num_takes = streaming.stream->num_takes();
      streaming.write("late");
      if (!started) streaming.start();
      std::this_thread::sleep_for(milliseconds(10));
      EXPECT_EQ(streaming.stream->num_takes(), num_takes);
      EXPECT_EQ(streaming.stream.use_count(), 1);
      EXPECT_EQ(streaming.num_disconnects, 1);
    }
  }
}

TEST(HttpDisconnect, AHalfClosedClientIsGoneUnlessItsAnswerIsReady) {
  TestServer server;
  Streaming streaming(server);
  streaming.client.shutdown_write();
  EXPECT_TRUE(streaming.sees_disconnect());
  EXPECT_TRUE(streaming.client.sees_end());

  TestClient client = server.connect();
  client.send("GET /hello HTTP/1.1\r\nHost: test\r\n\r\n");
  client.shutdown_write();
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.sees_end());

  TestClient large = server.connect();
  large.send("GET /large HTTP/1.1\r\nHost: test\r\n\r\n");
  large.shutdown_write();
  EXPECT_EQ(large.read_response().body.size(), 8u << 20);
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
}

TEST(HttpDisconnect, TheCallbackRunsWhenSetLate) {
  TestServer server;
  TestClient client = server.connect();
  client.send(kRequest);
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  client.close();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
  std::atomic<int> num_disconnects{0};
  std::atomic<bool> other_thread{false};
  exchange->on_disconnect([&, thread = std::this_thread::get_id()] {
    other_thread = std::this_thread::get_id() != thread;
    ++num_disconnects;
  });
  EXPECT_TRUE(eventually([&] { return num_disconnects == 1; }));
  EXPECT_TRUE(other_thread);
}

TEST(HttpDisconnect, TheCallbackIsDroppedWithTheAnswer) {
  TestServer server;
  TestClient client = server.connect();
  client.send(kRequest);
  std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  auto held = std::make_shared<int>(1);
  exchange->on_disconnect([held, exchange] { ++*held; });
  exchange->respond({.body = "x"});
  EXPECT_EQ(client.read_response().body, "x");
  EXPECT_TRUE(eventually([&] { return held.use_count() == 1 && exchange.use_count() == 1; }));
  exchange->on_disconnect([held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  client.close();
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
  EXPECT_EQ(*held, 1);
}

// Also when the client has sent more than is held back, and the socket is not read.
TEST(HttpDisconnect, IsSeenBehindPipelinedBytes) {
  TestServer server;
  for (const size_t size : {1000, 70'000, 100'000}) {
    Streaming streaming(server);
    streaming.client.send(std::string(size, 'x'));
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(streaming.num_disconnects, 0);
    streaming.client.close();
    EXPECT_TRUE(streaming.sees_disconnect()) << size;
  }
}

// With more than the sockets hold, the end is stuck behind bytes that cannot be sent; what is
// written then finds nobody.
TEST(HttpDisconnect, IsSeenBehindAFloodWhenWriting) {
  TestServer server;
  Streaming streaming(server);
  streaming.start();
  const timeval patience{0, 100'000};
  ::setsockopt(streaming.client.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  EXPECT_FALSE(streaming.client.send(std::string(64 << 20, 'x')));
  EXPECT_EQ(streaming.num_disconnects, 0);
  streaming.client.close();
  EXPECT_TRUE(eventually([&] {
    streaming.write("token");
    return streaming.num_disconnects == 1;
  }));
}

TEST(HttpBackPressure, PipelinedBytesAreNotReadWithoutBound) {
  TestServer server;
  TestClient client = server.connect();
  client.send(kRequest);
  const std::shared_ptr<HttpExchange> exchange = server.next_held();
  ASSERT_NE(exchange, nullptr);
  // 64 MB of requests: the sockets' buffers hold a part, the server 64 KB.
  std::string requests;
  constexpr int kRequests = 2000;
  for (int i = 0; i < kRequests; ++i) {
    requests += "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 32000\r\n\r\n";
    requests += std::string(32000, 'y');
  }
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    client.send(requests);
    sent = true;
  });
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(sent);
  exchange->respond({.body = "first"});
  EXPECT_EQ(client.read_response().body, "first");
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.read_response().body.size(), 32000u);
  sender.join();
}

TEST(HttpBackPressure, NothingIsTakenWhileTheClientIsSlow) {
  TestServer server;
  Streaming streaming(server);
  streaming.start();
  const std::string piece(1 << 20, 'p');
  size_t num_written = 0;
  size_t num_takes = 0;
  // Until the sockets are full: then a notification takes nothing.
  for (int i = 0; i < 64; ++i) {
    streaming.write(piece);
    ++num_written;
    std::this_thread::sleep_for(milliseconds(5));
    if (streaming.stream->num_takes() == num_takes) break;
    num_takes = streaming.stream->num_takes();
  }
  EXPECT_LT(num_written, 64u);
  EXPECT_EQ(streaming.num_disconnects, 0);
  streaming.end();
  const TestResponse response = streaming.client.read_response();
  EXPECT_TRUE(response.is_complete);
  EXPECT_EQ(response.body.size(), num_written * piece.size());
}

TEST(HttpBackPressure, AClientThatTakesNothingIsGone) {
  HttpServerOptions options;
  options.write_timeout = milliseconds(100);
  TestServer server(options);
  Streaming streaming(server);
  streaming.start();
  streaming.write(std::string(64 << 20, 'p'));
  EXPECT_TRUE(streaming.sees_disconnect());
  TestClient plain = server.connect();
  for (int i = 0; i < 4; ++i) plain.send("GET /large HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server->stats().num_exchanges == 1; }));
  EXPECT_TRUE(eventually([&] { return server->stats().num_connections == 0; }));
}

TEST(HttpBackPressure, AClientThatReadsSlowlyIsNotGone) {
  HttpServerOptions options;
  options.write_timeout = milliseconds(150);
  TestServer server(options);
  Streaming streaming(server);
  streaming.start();
  streaming.stream->append(std::string(16 << 20, 'p'));
  streaming.end();
  size_t size = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (size < 16u << 20) {
    const std::string bytes = streaming.client.receive(1 << 20);
    if (bytes.empty()) break;
    size += bytes.size();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_GE(size, 16u << 20);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(200));
  EXPECT_EQ(streaming.num_disconnects, 0);
}

}  // namespace
}  // namespace atom::server
