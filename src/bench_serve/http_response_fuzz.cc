// Arbitrary bytes as a server's answer: in one piece, and in pieces whose sizes come from the
// input, which must say the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "bench_serve/answer_reader.h"

namespace {

using atom::bench_serve::Answer;
using atom::bench_serve::AnswerReader;

Answer read(std::string_view bytes, size_t piece, bool streamed) {
  AnswerReader reader;
  reader.start(streamed);
  for (size_t at = 0; at < bytes.size(); at += piece) reader.feed(bytes.substr(at, piece), 1);
  reader.feed_end(2);
  CHECK(reader.finished());
  return reader.take_answer();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t piece = 1 + data[0] % 64;
  const bool streamed = data[1] % 4 != 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Answer whole = read(bytes, bytes.size() + 1, streamed);
  const Answer pieces = read(bytes, piece, streamed);
  CHECK(whole.error_kind == pieces.error_kind);
  CHECK(whole.num_token_events == pieces.num_token_events);
  CHECK(whole.completion_tokens == pieces.completion_tokens);
  CHECK(whole.gaps.size() == pieces.gaps.size());

  // The same bytes as the body of a stream, which they rarely are by chance.
  std::string stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  stream += bytes;
  const Answer events = read(stream, stream.size(), true);
  const Answer cut = read(stream, piece, true);
  CHECK(events.error_kind == cut.error_kind);
  CHECK(events.num_token_events == cut.num_token_events);
  return 0;
}
