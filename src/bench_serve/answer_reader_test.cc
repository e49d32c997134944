#include "bench_serve/answer_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/check.h"

namespace atom::bench_serve {
namespace {

std::string chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string event(std::string_view text, std::string_view finish = "null") {
  return fmt::format(
      "data: {{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","
      "\"choices\":[{{\"index\":0,\"text\":\"{}\",\"logprobs\":null,\"finish_reason\":{}}}],"
      "\"usage\":null}}\n\n",
      text,
      finish);
}

constexpr std::string_view kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":8,"
    "\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\n";

std::string usual_stream() {
  return std::string(kStreamHead) + chunk(event("a")) + chunk(event(" \\\"b\\\\")) +
         chunk(event("c", "\"length\"")) + chunk(kUsage) + chunk("data: [DONE]\n\n") + "0\r\n\r\n";
}

Answer read_all(std::string_view bytes, bool streamed = true) {
  AnswerReader reader;
  reader.start(streamed);
  reader.feed(bytes, 1);
  if (!reader.finished()) reader.feed_end(2);
  EXPECT_TRUE(reader.finished());
  return reader.take_answer();
}

TEST(AnswerReader, UsualStream) {
  AnswerReader reader;
  reader.start(true);
  reader.feed(usual_stream(), 1);
  ASSERT_TRUE(reader.finished());
  EXPECT_TRUE(reader.can_reuse_connection());
  const Answer answer = reader.take_answer();
  EXPECT_EQ(answer.error_kind, ErrorKind::kNone) << answer.error;
  EXPECT_EQ(answer.num_token_events, 3);
  EXPECT_EQ(answer.prompt_tokens, 5);
  EXPECT_EQ(answer.completion_tokens, 3);
  EXPECT_EQ(answer.http_status, 200);
}

TEST(AnswerReader, AnyCutsGiveTheSame) {
  const std::string stream = usual_stream();
  for (size_t cut = 1; cut < stream.size(); ++cut) {
    AnswerReader reader;
    reader.start(true);
    reader.feed(std::string_view(stream).substr(0, cut), 1);
    reader.feed(std::string_view(stream).substr(cut), 2);
    ASSERT_TRUE(reader.finished()) << cut;
    ASSERT_TRUE(reader.can_reuse_connection()) << cut;
    const Answer answer = reader.take_answer();
    ASSERT_EQ(answer.error_kind, ErrorKind::kNone) << cut << answer.error;
    ASSERT_EQ(answer.num_token_events, 3) << cut;
    ASSERT_EQ(answer.completion_tokens, 3) << cut;
  }
  AnswerReader reader;
  reader.start(true);
  for (size_t i = 0; i < stream.size(); ++i) {
    reader.feed(std::string_view(stream).substr(i, 1), static_cast<double>(i));
  }
  EXPECT_TRUE(reader.can_reuse_connection());
  const Answer answer = reader.take_answer();
  EXPECT_EQ(answer.num_token_events, 3);
  EXPECT_EQ(answer.gaps.size(), 2u);
}

TEST(AnswerReader, TimesAreThoseOfTheTokens) {
  AnswerReader reader;
  reader.start(true);
  reader.feed(kStreamHead, 1);
  reader.feed(chunk(": ping\n\n"), 2);
  reader.feed(chunk(event("a")), 3);
  reader.feed(chunk(event("b") + event("c")), 5);
  reader.feed(chunk(kUsage), 6);
  EXPECT_FALSE(reader.finished());
  reader.feed(chunk("data: [DONE]\n\n"), 7);
  EXPECT_TRUE(reader.finished());
  EXPECT_FALSE(reader.message_complete());
  const Answer answer = reader.take_answer();
  EXPECT_EQ(answer.first_token, 3);
  EXPECT_EQ(answer.last_token, 5);
  EXPECT_EQ(answer.end, 7);
  EXPECT_EQ(answer.gaps, (std::vector<float>{2, 0}));
}

TEST(AnswerReader, OtherFraming) {
  const std::string events = event("a") + event("b", "\"stop\"") + "data: [DONE]\n\n";
  const std::string type = "Content-Type: text/event-stream; charset=utf-8\r\n";
  // Until the end of the connection, with a length, and with LF alone in the head.
  EXPECT_EQ(read_all("HTTP/1.0 200 OK\r\n" + type + "\r\n" + events).num_token_events, 2);
  const std::string length = fmt::format("content-length: {}\r\n", events.size());
  EXPECT_EQ(read_all("HTTP/1.1 200\r\n" + type + length + "\r\n" + events).num_token_events, 2);
  std::string bare = "HTTP/1.1 200 OK\n" + type + "\n" + events;
  EXPECT_EQ(read_all(bare).num_token_events, 2);
  // CRLF events, a chunk extension, an interim response, several lines of data.
  const std::string odd =
      "HTTP/1.1 100 Continue\r\n\r\n" + std::string(kStreamHead) +
      "2d;x=y\r\nevent: m\r\ndata: {\"choices\":[\r\ndata: {\"text\":\r\n\r\n" +
      chunk(
          "data: \"a\"}]}\r\n\r\ndata:{\"choices\":[{\"text\":\"b\",\"finish_reason\":\"x\"}]}"
          "\r\n\r\n") +
      "0\r\nTrailer: x\r\n\r\n";
  const Answer answer = read_all(odd);
  // The first event is cut by a blank line: no JSON.
  EXPECT_EQ(answer.error_kind, ErrorKind::kMalformed);
}

TEST(AnswerReader, EventOfSeveralLines) {
  const Answer answer = read_all(
      std::string(kStreamHead) +
      chunk("data: {\"choices\":[\r\ndata: {\"text\":\"a\",\"finish_reason\":\"stop\"}]}\r\n\r\n") +
      "0\r\n\r\n");
  EXPECT_EQ(answer.error_kind, ErrorKind::kNone) << answer.error;
  EXPECT_EQ(answer.num_token_events, 1);
}

TEST(AnswerReader, ChatRoleIsNoToken) {
  const std::string head(kStreamHead);
  const Answer answer = read_all(
      head +
      chunk("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n") +
      chunk("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n") +
      chunk("data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n") +
      chunk("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n") +
      chunk("data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n") +
      chunk("data: [DONE]\n\n") + "0\r\n\r\n");
  EXPECT_EQ(answer.error_kind, ErrorKind::kNone) << answer.error;
  EXPECT_EQ(answer.num_token_events, 3);
}

TEST(AnswerReader, KeysInTextAreNoKeys) {
  const std::string text = R"(\"error\":{\"usage\":{\"completion_tokens\":9}},\"role\":\"x\"\\)";
  const Answer answer = read_all(std::string(kStreamHead) + chunk(event("a")) + chunk(event(text)) +
                                 chunk("data: [DONE]\n\n") + "0\r\n\r\n");
  EXPECT_EQ(answer.error_kind, ErrorKind::kNone) << answer.error;
  EXPECT_EQ(answer.num_token_events, 2);
  EXPECT_EQ(answer.completion_tokens, -1);
}

TEST(AnswerReader, WholeAnswers) {
  const std::string body =
      R"({"choices":[{"text":"x"}],"usage":{"prompt_tokens":4,"completion_tokens":2}})";
  const auto response = [](int status, const std::string& text) {
    return fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, text.size(), text);
  };
  const Answer whole = read_all(response(200, body), false);
  EXPECT_EQ(whole.error_kind, ErrorKind::kNone);
  EXPECT_EQ(whole.completion_tokens, 2);
  EXPECT_LT(whole.first_token, 0);
  // A server that does not stream when asked to.
  EXPECT_EQ(read_all(response(200, body), true).error_kind, ErrorKind::kNone);
  EXPECT_EQ(read_all(response(200, "hello")).error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(response(200, "{}")).error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(response(200, "[1]")).error_kind, ErrorKind::kMalformed);
  const Answer refused = read_all(response(429, R"({"error":{"message":"slow down"}})"));
  EXPECT_EQ(refused.error_kind, ErrorKind::kStatus);
  EXPECT_EQ(refused.error, "HTTP 429: slow down");
  EXPECT_EQ(read_all(response(500, "<html>")).error, "HTTP 500: <html>");
  EXPECT_EQ(read_all("HTTP/1.1 204 No\r\n\r\n").error_kind, ErrorKind::kMalformed);
}

TEST(AnswerReader, ErrorsInsideAStream) {
  const std::string head = std::string(kStreamHead) + chunk(event("a"));
  for (const char* text : {"data: {\"error\":{\"message\":\"boom\",\"code\":500}}\n\n",
                           "data: {\"error\": \"boom\"}\n\n",
                           "event: error\ndata: {\"message\":\"boom\"}\n\n",
                           "error: {\"code\":500,\"message\":\"boom\"}\n\n"}) {
    const Answer answer = read_all(head + chunk(text) + "0\r\n\r\n");
    EXPECT_EQ(answer.error_kind, ErrorKind::kReported) << text;
    EXPECT_EQ(answer.error, "boom") << text;
  }
}

TEST(AnswerReader, BrokenStreams) {
  const std::string head(kStreamHead);
  const std::string token = chunk(event("a"));
  EXPECT_EQ(read_all("").error_kind, ErrorKind::kCut);
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\n").error_kind, ErrorKind::kCut);
  EXPECT_EQ(read_all(head + token).error_kind, ErrorKind::kCut);
  EXPECT_EQ(read_all(head + token + "0\r\n\r\n").error_kind, ErrorKind::kCut);
  EXPECT_EQ(read_all(head + "0\r\n\r\n").error_kind, ErrorKind::kEmpty);
  EXPECT_EQ(read_all(head + chunk("data: [DONE]\n\n")).error_kind, ErrorKind::kEmpty);
  EXPECT_EQ(read_all(head + "zz\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(head + "1\r\nab\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(head + "ffffffffffffffffff\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(head + chunk("data: garbage\n\n")).error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all(head + token + chunk("data: garbage\n\n")).error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all("SSH-2.0-OpenSSH\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all("HTTP/1.1 999 X\r\n\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nno colon\r\n\r\n").error_kind, ErrorKind::kMalformed);
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").error_kind,
            ErrorKind::kMalformed);
  EXPECT_EQ(
      read_all("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").error_kind,
      ErrorKind::kMalformed);
  EXPECT_EQ(read_all("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n").error_kind,
            ErrorKind::kMalformed);
}

TEST(AnswerReader, LimitsHold) {
  AnswerReader reader;
  const std::string lots(1 << 20, 'x');
  reader.start(true);
  reader.feed("HTTP/1.1 200 OK\r\nA: " + lots, 1);
  EXPECT_TRUE(reader.finished());
  reader.start(true);
  reader.feed(kStreamHead, 1);
  for (int i = 0; i < 20 && !reader.finished(); ++i) reader.feed(chunk(lots), 1);
  EXPECT_TRUE(reader.finished());  // a line without an end
  EXPECT_EQ(reader.take_answer().error_kind, ErrorKind::kMalformed);
  reader.start(true);
  reader.feed(kStreamHead, 1);
  for (int i = 0; i < 20 && !reader.finished(); ++i) reader.feed(chunk("data: " + lots + "\n"), 1);
  EXPECT_TRUE(reader.finished());  // an event without an end
  std::string interim;
  for (int i = 0; i < 20; ++i) interim += "HTTP/1.1 103 Hint\r\n\r\n";
  EXPECT_EQ(read_all(interim).error_kind, ErrorKind::kMalformed);
  const std::string absurd =
      "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":99999999999}}\n\n";
  EXPECT_EQ(read_all(std::string(kStreamHead) + chunk(absurd)).completion_tokens, -1);
}

TEST(AnswerReader, ConnectionsThatCannotBeReused) {
  const auto can_reuse = [](const std::string& bytes) {
    AnswerReader reader;
    reader.start(false);
    reader.feed(bytes, 1);
    return reader.can_reuse_connection();
  };
  EXPECT_TRUE(can_reuse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
  EXPECT_FALSE(can_reuse("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}"));
  EXPECT_FALSE(can_reuse("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
  EXPECT_TRUE(
      can_reuse("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}"));
  EXPECT_FALSE(can_reuse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP"));
  EXPECT_FALSE(can_reuse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"));
}

TEST(AnswerReader, RandomBytesInRandomPieces) {
  std::mt19937 random(11);
  const std::string stream = usual_stream();
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = stream;
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    AnswerReader reader;
    reader.start(true);
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(1 + random() % 200, bytes.size() - at);
      reader.feed(std::string_view(bytes).substr(at, size), 1);
      at += size;
    }
    reader.feed_end(2);
    ASSERT_TRUE(reader.finished());
  }
}

// The figure that matters is printed; the bound is one that no machine misses.
TEST(AnswerReader, SpeedOnOneCore) {
  constexpr int kEvents = 200000;
  std::string stream(kStreamHead);
  for (int i = 0; i < kEvents; ++i) stream += chunk(event(" word"));
  const auto start = std::chrono::steady_clock::now();
  AnswerReader reader;
  reader.start(true);
  for (size_t at = 0; at < stream.size(); at += 65536) {
    reader.feed(std::string_view(stream).substr(at, 65536), 1);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(reader.take_answer().num_token_events, kEvents);
  const double rate = kEvents / seconds;
  fmt::print("{:.2f} million events/s, {} bytes each\n", rate / 1e6, stream.size() / kEvents);
  EXPECT_GT(rate, 20000);
}

}  // namespace
}  // namespace atom::bench_serve
