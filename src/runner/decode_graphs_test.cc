#include "runner/decode_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

namespace atom {
namespace {

TEST(DecodeGraphs, SizesGrowAndEndWithTheLargestBatch) {
  EXPECT_EQ(DecodeGraphs::batch_sizes(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(DecodeGraphs::batch_sizes(5), (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_EQ(DecodeGraphs::batch_sizes(40), (std::vector<int64_t>{1, 2, 4, 8, 16, 24, 32, 40}));
  for (const int64_t max_batch : {16, 17, 256, 300, 1024}) {
    const std::vector<int64_t> sizes = DecodeGraphs::batch_sizes(max_batch);
    EXPECT_EQ(sizes.back(), max_batch);
    for (size_t i = 1; i < sizes.size(); ++i) {
      EXPECT_GT(sizes[i], sizes[i - 1]);
      // What is computed for nothing.
      EXPECT_LE(sizes[i] - sizes[i - 1], std::max<int64_t>(16, sizes[i - 1]));
    }
  }
}

TEST(DecodeGraphs, SizesThatWereAskedForAreRecordedAlone) {
  const auto batches = [](const ResolvedConfig& config, int64_t queries) {
    std::vector<int64_t> found;
    for (const DecodeShape& shape : DecodeGraphs::shapes(config)) {
      if (shape.queries == queries) found.push_back(shape.batch);
    }
    return found;
  };
  ResolvedConfig config;
  config.scheduler.max_num_seqs = 12;
  EXPECT_EQ(batches(config, 1), (std::vector<int64_t>{1, 2, 4, 8, 12}));
  config.recorded_batches = {{3, 10, 20}};
  config.scheduler.num_speculative_tokens = 2;
  config.scheduler.speculative_disable_by_batch_size = 5;
  EXPECT_EQ(batches(config, 1), (std::vector<int64_t>{3, 10}));
  EXPECT_EQ(batches(config, 3), (std::vector<int64_t>{3}));
  config.recorded_batches.emplace();
  EXPECT_TRUE(DecodeGraphs::shapes(config).empty());
}

TEST(DecodeGraphs, NothingIsFoundBeforeAnythingIsRecorded) {
  EXPECT_EQ(DecodeGraphs().find(1, 1), nullptr);
}

TEST(DecodeGraphs, AStepThatCannotBeRecordedIsAnErrorThatSaysHowToGoOn) {
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  if (!runtime.ok()) GTEST_SKIP() << "no GPU";
  ThreadPool pool(1);
  const std::unique_ptr<DeviceQueue> queue = (*runtime)->create_queue();
  const Stream stream(&pool, queue.get());
  // Memory is not to be had while a step is recorded.
  bool fails = true;
  const auto run = [&](const StepInputs&, SamplingKind) {
    try {
      if (fails) (*runtime)->allocate(1 << 20);
    } catch (const std::bad_alloc&) {
    }
    return Tensor();
  };
  const auto prepare = [](const DecodeShape&) { return StepInputs(); };
  const auto record = [&] {
    return DecodeGraphs().record(
        stream, {{1, 1}}, prepare, run, [] {}, [] {});
  };
  const Status status = record();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(),
              ::testing::AllOf(
                  ::testing::HasSubstr("a decode step of 1 sequences could not be recorded: "),
                  ::testing::HasSubstr("--enable-graphs=false runs every step without recording")));
  fails = false;
  EXPECT_TRUE(record().ok());
}

}  // namespace
}  // namespace atom
