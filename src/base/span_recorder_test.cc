#include "base/span_recorder.h"

#include <gtest/gtest.h>

#include <thread>

namespace atom {
namespace {

TEST(SpanRecorder, NotesNothingWhileItIsOff) {
  SpanRecorder recorder;
  { const SpanScope span(&recorder, "track", "before"); }
  { const SpanScope span(nullptr, "track", "without"); }
  recorder.start();
  EXPECT_TRUE(recorder.is_on());
  EXPECT_TRUE(recorder.stop().spans.empty());
  { const SpanScope span(&recorder, "track", "after"); }
  EXPECT_FALSE(recorder.is_on());
  EXPECT_TRUE(recorder.stop().spans.empty());
}

TEST(SpanRecorder, NotesWhatBeganAfterItsStart) {
  SpanRecorder recorder;
  recorder.start();
  {
    const SpanScope of_the_first_recording(&recorder, "track", "stale");
    EXPECT_TRUE(recorder.stop().spans.empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    recorder.start();
  }
  { const SpanScope span(&recorder, "track", "step", {{{"tokens", 7}}}); }
  const SpanRecording recording = recorder.stop();
  ASSERT_EQ(recording.spans.size(), 1u);
  EXPECT_EQ(recording.spans[0].name, "step");
  EXPECT_EQ(recording.spans[0].arguments[0].value, 7);
  EXPECT_GE(recording.spans[0].begin, recording.begin);
  EXPECT_GE(recording.spans[0].end, recording.spans[0].begin);
}

TEST(SpanRecorder, DropsTheNewestWhenItIsFull) {
  SpanRecorder recorder(2);
  recorder.start();
  for (const char* name : {"a", "b", "c", "d"}) const SpanScope span(&recorder, "track", name);
  const SpanRecording recording = recorder.stop();
  ASSERT_EQ(recording.spans.size(), 2u);
  EXPECT_EQ(recording.spans[1].name, "b");
  EXPECT_EQ(recording.num_dropped, 2u);
}

TEST(SpanRecorder, TakesSpansOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 500;
  SpanRecorder recorder;
  recorder.start();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kSpans; ++k) const SpanScope span(&recorder, "track", "step");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recorder.stop().spans.size(), size_t{kThreads * kSpans});
}

}  // namespace
}  // namespace atom
