// Events of a completion stream that one core reads in a second.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "bench_serve/answer_reader.h"

namespace atom::bench_serve {
namespace {

constexpr int kEvents = 10000;
constexpr size_t kReadSize = 64 << 10;

std::string make_stream() {
  std::string stream =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string event =
      "data: "
      "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":"
      "1700000000,\"model\":\"model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
      "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";
  for (int i = 0; i < kEvents; ++i) stream += fmt::format("{:x}\r\n{}\r\n", event.size(), event);
  return stream;
}

void read_events(benchmark::State& state) {
  const std::string stream = make_stream();
  AnswerReader reader;
  for (auto _ : state) {
    reader.start(true);
    for (size_t at = 0; at < stream.size(); at += kReadSize) {
      reader.feed(std::string_view(stream).substr(at, kReadSize), 1);
    }
    benchmark::DoNotOptimize(reader.take_answer());
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(stream.size()));
}
BENCHMARK(read_events);

}  // namespace
}  // namespace atom::bench_serve
