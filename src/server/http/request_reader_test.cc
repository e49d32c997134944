#include "server/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace atom::server {
namespace {

constexpr RequestLimits kLimits{4096, 1000};

struct Outcome {
  RequestReader::State state;
  int status = 0;
  size_t used = 0;
  HttpRequest request;
  bool keeps_alive = false;
};

// Feeds `bytes` in pieces of `piece_size`.
Outcome read(const std::string& bytes, size_t piece_size, const RequestLimits& limits = kLimits) {
  RequestReader reader(limits);
  Outcome outcome;
  while (outcome.used < bytes.size() && reader.state() != RequestReader::State::kComplete &&
         reader.state() != RequestReader::State::kFailed) {
    const std::string_view piece = std::string_view(bytes).substr(outcome.used, piece_size);
    const size_t used = reader.feed(piece);
    EXPECT_LE(used, piece.size());
    outcome.used += used;
  }
  outcome.state = reader.state();
  outcome.status = reader.error().status;
  if (outcome.state == RequestReader::State::kComplete) {
    outcome.keeps_alive = reader.keeps_alive();
    outcome.request = reader.take_request();
  }
  return outcome;
}

// The same however the bytes are cut.
Outcome read_in_pieces(const std::string& bytes, const RequestLimits& limits = kLimits) {
  Outcome whole = read(bytes, bytes.size(), limits);
  for (const size_t piece_size : {1, 2, 3, 7, 64}) {
    const Outcome cut = read(bytes, piece_size, limits);
    EXPECT_EQ(cut.state, whole.state) << piece_size;
    EXPECT_EQ(cut.status, whole.status) << piece_size << " " << bytes;
    EXPECT_EQ(cut.request.body, whole.request.body);
    EXPECT_EQ(cut.request.path, whole.request.path);
    EXPECT_EQ(cut.request.headers, whole.request.headers);
    if (whole.state == RequestReader::State::kComplete) {
      EXPECT_EQ(cut.used, whole.used);
    }
  }
  return whole;
}

TEST(RequestReader, ReadsAGet) {
  const Outcome outcome = read_in_pieces(
      "GET /v1/a%20b?x=%20y HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Padded: \t a b \t\r\n\r\nGET "
      "next");
  ASSERT_EQ(outcome.state, RequestReader::State::kComplete);
  EXPECT_EQ(outcome.request.method, "GET");
  EXPECT_EQ(outcome.request.path, "/v1/a b");
  EXPECT_EQ(outcome.request.query, "x=%20y");
  EXPECT_EQ(outcome.request.header("x-empty"), "");
  EXPECT_EQ(outcome.request.header("x-padded"), "a b");
  EXPECT_EQ(outcome.request.headers.size(), 3u);
  EXPECT_TRUE(outcome.keeps_alive);
}

TEST(RequestReader, LeavesWhatFollows) {
  const std::string first = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
  const Outcome outcome = read_in_pieces(first + "POST /b HTTP/1.1\r\n");
  ASSERT_EQ(outcome.state, RequestReader::State::kComplete);
  EXPECT_EQ(outcome.used, first.size());
  EXPECT_EQ(outcome.request.body, "abc");

  const std::string chunked =
      "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0a;name=\"va;lue\"\r\n0123456789\r\n0\r\nX-Trailer: ignored\r\n\r\n";
  const Outcome second = read_in_pieces(chunked + "0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(second.state, RequestReader::State::kComplete);
  EXPECT_EQ(second.used, chunked.size());
  EXPECT_EQ(second.request.body, "abc0123456789");
  EXPECT_EQ(second.request.header("X-Trailer"), "");
}

TEST(RequestReader, EmptyLinesBeforeARequestAreSkipped) {
  EXPECT_EQ(read_in_pieces("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").state,
            RequestReader::State::kComplete);
  EXPECT_EQ(read_in_pieces("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
}

TEST(RequestReader, KeepAliveFollowsVersionAndHeader) {
  EXPECT_TRUE(read("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 999).keeps_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n", 999).keeps_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n", 999).keeps_alive);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 999).keeps_alive);
}

TEST(RequestReader, TargetForms) {
  const auto path = [](const std::string& line) {
    return read_in_pieces(line + " HTTP/1.1\r\nHost: h\r\n\r\n").request.path;
  };
  EXPECT_EQ(path("GET http://example.com:80/a/b?c"), "/a/b");
  EXPECT_EQ(path("GET HTTP://example.com"), "/");
  EXPECT_EQ(path("OPTIONS *"), "*");
  EXPECT_EQ(path("GET //x"), "//x");
}

TEST(RequestReader, RefusesWhatIsMalformed) {
  const std::string end = "\r\n\r\n";
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {"\x16\x03\x01\x02", 400},
      {" GET / HTTP/1.1\r\nHost: h" + end, 400},
      {"GET  / HTTP/1.1\r\nHost: h" + end, 400},
      {"GET /\r\nHost: h" + end, 400},
      {"GET / HTTP/1.1 \r\nHost: h" + end, 505},
      {"GET / HTTP/2.0\r\nHost: h" + end, 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\n\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\rX: y" + end, 400},
      {"GET / HTTP/1.1" + end, 400},  // no Host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b" + end, 400},
      {"GET / HTTP/1.1\r\nHost : h" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\n: empty" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nno colon" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded" + end, 400},
      {"GET / HTTP/1.1\r\n Host: h" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a" + std::string(1, '\0') + "b" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: \x01" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: \x7f" + end, 400},
      {"GET /\t HTTP/1.1\r\nHost: h" + end, 400},
      {"GET /%zz HTTP/1.1\r\nHost: h" + end, 400},
      {"GET /%00 HTTP/1.1\r\nHost: h" + end, 400},
      {"GET relative HTTP/1.1\r\nHost: h" + end, 400},
      {"GET * HTTP/1.1\r\nHost: h" + end, 400},
      {"GET /a#b HTTP/1.1\r\nHost: h" + end, 400},
      {"CONNECT h:80 HTTP/1.1\r\nHost: h" + end, 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nExpect: tea" + end, 417},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: \"" + end, 400},
  };
  for (const auto& c : cases) EXPECT_EQ(read_in_pieces(c.bytes).status, c.status) << c.bytes;
}

// Every way to let two readers disagree on where the request ends.
TEST(RequestReader, RefusesAmbiguousLengths) {
  const std::string chunk = "\r\n\r\n0\r\n\r\n";
  const struct {
    std::string headers;
    int status;
  } cases[] = {
      {"Content-Length: 3\r\nTransfer-Encoding: chunked", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 3", 400},
      {"Content-Length: 3\r\nContent-Length: 4", 400},
      {"Content-Length: 3\r\nContent-Length: 3", 400},
      {"Content-Length: 3, 3", 400},
      {"Content-Length: +3", 400},
      {"Content-Length: -3", 400},
      {"Content-Length: 0x3", 400},
      {"Content-Length: 3 3", 400},
      {"Content-Length:", 400},
      {"Content-Length: 99999999999999999999", 400},
      {"Content-Length: 18446744073709551615", 413},
      {"Content-Length: 1001", 413},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400},
      {"Transfer-Encoding: gzip, chunked", 501},
      {"Transfer-Encoding: chunked, identity", 501},
      {"Transfer-Encoding: identity", 501},
      {"Transfer-Encoding: xchunked", 501},
      {"Transfer-Encoding:\x0b"
       "chunked",
       400},
      {"Transfer-Encoding : chunked", 400},
  };
  for (const auto& c : cases) {
    const Outcome outcome = read_in_pieces("POST / HTTP/1.1\r\nHost: h\r\n" + c.headers + chunk);
    EXPECT_EQ(outcome.status, c.status) << c.headers;
  }
  EXPECT_EQ(read_in_pieces("POST / HTTP/1.0\r\nTransfer-Encoding: chunked" + chunk).status, 400);
}

TEST(RequestReader, RefusesBadChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const struct {
    std::string body;
    int status;
  } cases[] = {
      {"g\r\n", 400},
      {"-1\r\nabc", 400},
      {" 3\r\nabc\r\n", 400},
      {"\r\n", 400},
      {"3\r\nabcd\r\n0\r\n\r\n", 400},
      {"3 \xff\r\nabc\r\n", 400},
      {"ffffffffffffffff\r\nabc", 413},
      {"fffffffffffffffff\r\nabc", 400},
      {"3e9\r\n", 413},
      {"1f4\r\n" + std::string(500, 'a') + "\r\n1f5\r\n", 413},
      {"1;" + std::string(10000, 'x'), 400},
      {"0\r\nX: " + std::string(10000, 'x'), 400},
      {"1;" + std::string(10000, 'x') + "\r\na\r\n0\r\n\r\n", 400},
      {"0\r\nX: " + std::string(10000, 'x') + "\r\n\r\n", 400},
      {"0\r\nno colon\r\n\r\n", 400},
  };
  for (const auto& c : cases) EXPECT_EQ(read_in_pieces(head + c.body).status, c.status) << c.body;
}

TEST(RequestReader, LimitsHeaders) {
  const std::string line = "GET / HTTP/1.1\r\nHost: h\r\n";
  const auto padded = [&](size_t size) {
    return line + "X: " + std::string(size - line.size() - 3 - 4, 'a') + "\r\n\r\n";
  };
  EXPECT_EQ(read_in_pieces(padded(4096)).state, RequestReader::State::kComplete);
  EXPECT_EQ(read_in_pieces(padded(4097)).status, 431);
  EXPECT_EQ(read_in_pieces(padded(9000)).status, 431);
  EXPECT_EQ(read_in_pieces("GET /" + std::string(5000, 'a')).status, 431);
  // Which of two faults is named depends on where they stand, not on how the bytes come.
  EXPECT_EQ(read_in_pieces("GET /" + std::string(5000, 'a') + "\n\r\n\r\n").status, 431);
  EXPECT_EQ(read_in_pieces("GET /\n" + std::string(5000, 'a')).status, 400);
  EXPECT_EQ(read_in_pieces("GET /\n" + std::string(5000, 'a') + "\r\n\r\n").status, 400);

  std::string many = line;
  for (int i = 0; i < 99; ++i) many += "A: b\r\n";
  EXPECT_EQ(read_in_pieces(many + "\r\n").state, RequestReader::State::kComplete);
  EXPECT_EQ(read_in_pieces(many + "A: b\r\n\r\n").status, 400);
}

TEST(RequestReader, LimitsBodies) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string body(1000, 'b');
  EXPECT_EQ(read_in_pieces(head + "Content-Length: 1000\r\n\r\n" + body).request.body, body);
  EXPECT_EQ(
      read_in_pieces(head + "Transfer-Encoding: Chunked\r\n\r\n3e8\r\n" + body + "\r\n0\r\n\r\n")
          .request.body,
      body);
}

TEST(RequestReader, KnowsTheHeadBeforeTheBody) {
  RequestReader reader(kLimits);
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n"
      "X-Request-Id: id-1\r\n\r\n";
  EXPECT_EQ(reader.feed(head), head.size());
  EXPECT_EQ(reader.state(), RequestReader::State::kBody);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_TRUE(reader.is_http_1_1());
  EXPECT_EQ(reader.request_id(), "id-1");
  EXPECT_EQ(reader.feed("abc"), 2u);
  EXPECT_EQ(reader.take_request().body, "ab");
}

TEST(CheckHeadBytes, NamesWhatIsWrong) {
  EXPECT_EQ(check_head_bytes("GET / HTTP/1.1\r\nA: \tb\xff\r\n\r\n").status, 0);
  EXPECT_EQ(check_head_bytes("GET / HTTP/1.1\r\nA: b\r").status, 400);
  EXPECT_EQ(check_head_bytes("GET\t/ HTTP/1.1\r\n\r\n").status, 400);
}

std::string post(const std::string& headers, const std::string& body) {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

TEST(RequestReader, BodiesShareABudget) {
  const RequestLimits limits{4096, 1 << 20};
  const auto budget = std::make_shared<ByteBudget>(300'000);
  const std::string body(200'000, 'b');
  const std::string whole = post("Content-Length: 200000\r\n", body);
  {
    RequestReader reader(limits, budget);
    EXPECT_EQ(reader.feed(whole), whole.size());
    EXPECT_EQ(reader.state(), RequestReader::State::kComplete);
    EXPECT_EQ(budget->used(), 200'000u);
    const HttpRequest request = reader.take_request();
    // What is promised alone costs little.
    RequestReader second(limits, budget);
    second.feed(post("Content-Length: 200000\r\n", ""));
    EXPECT_LE(budget->used(), 200'000u + 65'536u);
    second.feed(body);
    EXPECT_EQ(second.state(), RequestReader::State::kFailed);
    EXPECT_EQ(second.error().status, 429);
  }
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_EQ(budget->large_given_back(), 0u);
  RequestReader chunked(limits, budget);
  chunked.feed(post("Transfer-Encoding: chunked\r\n", ""));
  for (int i = 0; i < 100 && chunked.state() == RequestReader::State::kBody; ++i) {
    chunked.feed("2000\r\n" + std::string(0x2000, 'c') + "\r\n");
    EXPECT_LE(budget->used(), 300'000u);
  }
  EXPECT_EQ(chunked.error().status, 429);
}

TEST(RequestReader, ABodyOverTheWholeBudgetIsTooLarge) {
  RequestReader reader({4096, 1 << 20}, std::make_shared<ByteBudget>(1000));
  reader.feed(post("Content-Length: 1001\r\n", ""));
  EXPECT_EQ(reader.error().status, 413);
}

TEST(RequestReader, TheHeadCanBeHadWithoutTheBody) {
  RequestReader reader({4096, 1 << 20}, std::make_shared<ByteBudget>(1000));
  reader.feed(post("Content-Length: 900\r\n", "abc"));
  ASSERT_EQ(reader.state(), RequestReader::State::kBody);
  EXPECT_EQ(reader.head().method, "POST");
  const HttpRequest head = reader.take_head();
  EXPECT_EQ(head.header("content-length"), "900");
  EXPECT_EQ(head.body, "");
}

}  // namespace
}  // namespace atom::server
