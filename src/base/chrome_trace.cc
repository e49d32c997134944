#include "base/chrome_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/json_text.h"

namespace atom {
namespace {

constexpr size_t kUsualEventSize = 192;  // bytes

std::string quoted(const std::string& text) {
  return json_text(OrderedJson(text));
}

double microseconds(Span::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Appends an event that names a process or a thread.
void append_name(
    std::string_view kind, int process, size_t thread, const std::string& name, std::string* json) {
  *json += fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}},)",
                       kind,
                       process,
                       thread,
                       quoted(name));
  *json += '\n';
}

void append_span(const Span& span,
                 Span::Clock::time_point origin,
                 int process,
                 size_t thread,
                 std::string* json) {
  *json +=
      fmt::format(R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{)",
                  span.name,
                  process,
                  thread,
                  microseconds(span.begin - origin),
                  microseconds(std::max(span.end - span.begin, Span::Clock::duration::zero())));
  const char* separator = "";
  if (!span.variant.empty()) {
    *json += fmt::format(R"("variant":"{}")", span.variant);
    separator = ",";
  }
  for (const SpanArgument& argument : span.arguments) {
    if (argument.name == nullptr) continue;
    *json += fmt::format(R"({}"{}":{})", separator, argument.name, argument.value);
    separator = ",";
  }
  *json += "}},\n";
}

}  // namespace

std::string chrome_trace(const SpanRecording& recording, const TraceLabels& labels) {
  const int process = ::getpid();
  std::vector<std::string_view> tracks;
  std::string json = "{\"traceEvents\":[\n";
  json.reserve(recording.spans.size() * kUsualEventSize + 4096);
  for (const Span& span : recording.spans) {
    size_t track = std::ranges::find(tracks, span.track) - tracks.begin();
    if (track == tracks.size()) {
      tracks.push_back(span.track);
      append_name("thread_name", process, track + 1, std::string(span.track), &json);
    }
    append_span(span, recording.begin, process, track + 1, &json);
  }
  append_name("process_name", process, 0, labels.process, &json);
  json.resize(json.size() - std::string_view(",\n").size());
  json += "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{";
  for (const auto& [name, value] : labels.notes) {
    json += fmt::format("{}:{},", quoted(name), quoted(value));
  }
  json += fmt::format(
      R"("spans":"{}","dropped_spans":"{}"}}}})", recording.spans.size(), recording.num_dropped);
  json += '\n';
  return json;
}

}  // namespace atom
