#include "base/chrome_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace atom {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(ChromeTrace, NamesProcessTracksAndTimes) {
  SpanRecording recording;
  recording.begin = Span::Clock::now();
  const auto at = [&](auto offset) { return recording.begin + offset; };
  recording.spans = {{"core", "schedule", "", at(microseconds(1)), at(nanoseconds(3500)), {}},
                     {"runner",
                      "linear",
                      "avx2",
                      at(microseconds(4)),
                      at(microseconds(9)),
                      {{{"bytes", 10}, {"flops", -1}}}},
                     {"core", "send", "", at(microseconds(9)), at(microseconds(9)), {}}};
  recording.num_dropped = 5;
  const OrderedJson json = OrderedJson::parse(
      chrome_trace(recording, {"a \"core\"", {{"model", "m\xff\n"}, {"note", "n"}}}));
  OrderedJson names;
  std::vector<OrderedJson> spans;
  for (const OrderedJson& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], ::getpid());
    if (event["ph"] == "M") {
      names[std::string(event["name"]) + std::to_string(int(event["tid"]))] = event["args"]["name"];
    } else {
      EXPECT_EQ(event["ph"], "X");
      spans.push_back(event);
    }
  }
  EXPECT_EQ(names["process_name0"], "a \"core\"");
  EXPECT_EQ(names["thread_name1"], "core");
  EXPECT_EQ(names["thread_name2"], "runner");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["tid"], 1);
  EXPECT_EQ(spans[0]["ts"], 1.0);
  EXPECT_EQ(spans[0]["dur"], 2.5);
  EXPECT_EQ(spans[1]["tid"], 2);
  EXPECT_EQ(spans[1]["args"].dump(), R"({"variant":"avx2","bytes":10,"flops":-1})");
  EXPECT_EQ(spans[2]["tid"], 1);
  EXPECT_EQ(spans[2]["args"].dump(), "{}");
  EXPECT_EQ(json["otherData"]["note"], "n");
  EXPECT_EQ(json["otherData"]["spans"], "3");
  EXPECT_EQ(json["otherData"]["dropped_spans"], "5");
}

TEST(ChromeTrace, OfNothing) {
  const OrderedJson json = OrderedJson::parse(chrome_trace({}, {"core", {}}));
  EXPECT_EQ(json["traceEvents"].size(), 1u);
}

}  // namespace
}  // namespace atom
