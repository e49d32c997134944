#include "tensor/operator_trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "tensor/stream.h"

namespace atom {
namespace {

using std::chrono::milliseconds;

TEST(OperatorTrace, NotesNothingUnlessStarted) {
  OperatorTrace trace;
  trace.begin("linear", "reference", {});
  EXPECT_FALSE(trace.is_started());
  trace.start();
  EXPECT_TRUE(trace.stop().empty());
}

TEST(OperatorTrace, AnOperatorEndsWhereTheNextBegins) {
  OperatorTrace trace;
  for (int round = 0; round < 2; ++round) {
    trace.start();
    trace.begin("linear", "avx2", {.bytes = 10, .flops = 20, .is_fp8 = true});
    std::this_thread::sleep_for(milliseconds(20));
    trace.begin("rms_norm", "reference", {.bytes = 3});
    std::this_thread::sleep_for(milliseconds(5));
    const std::vector<OperatorRun> runs = trace.stop();
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_EQ(runs[0].op, "linear");
    EXPECT_EQ(runs[0].variant, "avx2");
    EXPECT_EQ(runs[0].work.bytes, 10);
    EXPECT_EQ(runs[0].work.flops, 20);
    EXPECT_TRUE(runs[0].work.is_fp8);
    EXPECT_EQ(runs[0].begin, 0);
    EXPECT_GE(runs[0].seconds, 0.02);
    EXPECT_EQ(runs[1].op, "rms_norm");
    EXPECT_DOUBLE_EQ(runs[1].begin, runs[0].seconds);
    EXPECT_GE(runs[1].seconds, 0.005);
  }
}

// Steps are noted while those before them have not been asked for.
TEST(OperatorTrace, MeasuresWhatItNotedBefore) {
  OperatorTrace trace;
  std::vector<OperatorTrace::Noted> noted;
  for (const char* op : {"linear", "rms_norm"}) {
    trace.start();
    trace.begin(op, "reference", {});
    std::this_thread::sleep_for(milliseconds(2));
    noted.push_back(trace.end());
    EXPECT_FALSE(trace.is_started());
  }
  EXPECT_GE(noted[1].marks.front().time, noted[0].marks.back().time);
  for (const char* op : {"linear", "rms_norm"}) {
    const std::vector<OperatorRun> runs = trace.measured(std::move(noted.front()));
    noted.erase(noted.begin());
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].op, op);
    EXPECT_GE(runs[0].seconds, 0.002);
  }
}

// The device's clock: a delay of the queue is the operator's time, and the head start is nobody's.
TEST(OperatorTrace, MeasuresAQueue) {
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  if (!runtime.ok()) GTEST_SKIP() << runtime.status().message();
  const std::unique_ptr<DeviceQueue> queue = (*runtime)->create_queue();
  OperatorTrace trace;
  trace.attach(queue.get());
  trace.start(OperatorTrace::kHeadStart);
  trace.begin("first", "cuda", {});
  queue->delay(milliseconds(8));
  trace.begin("second", "cuda", {});
  queue->delay(milliseconds(2));
  const std::vector<OperatorRun> runs = trace.stop();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_NEAR(runs[0].seconds, 8e-3, 1e-3);
  EXPECT_NEAR(runs[1].seconds, 2e-3, 1e-3);
}

}  // namespace
}  // namespace atom
