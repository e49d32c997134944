// Ranks on GPUs multiply in kinds that no library kernel was loaded for, each in its own, while
// others have come to the next exchange: nobody waits for a card that waits for them.
#include <gtest/gtest.h>

#include <thread>

#include "comm/device/device_group.h"
#include "comm/testing/card_ranks.h"
#include "ops/linear/linear.h"
#include "tensor/device_arena.h"
#include "tensor/fill.h"

namespace atom {
namespace {

constexpr int kSteps = 60;
constexpr int64_t kMostRows = 2048;
constexpr int64_t kSize = 1024;
constexpr int64_t kOutputs[] = {512, 1024, 1536, 3072};

// The first `count` rows, as they lie on the card.
ops::LinearWeight rows_of(const Tensor& weight, int64_t count) {
  ops::LinearWeight rows;
  rows.data = weight.narrow(0, 0, count);
  rows.out_features = count;
  rows.in_features = weight.size(1);
  return rows;
}

// One step after the other without waiting: a multiplication, a sum, and a message to rank 1.
void run(Communicator& rank, Device device, int num_ranks) {
  ThreadPool pool(1);
  DeviceRuntime& card = *device_runtime(device).value();
  card.make_current();
  const std::unique_ptr<DeviceQueue> queue = card.create_queue();
  const std::unique_ptr<DeviceArena> arena = DeviceArena::reserve(card, 256 << 20).value();
  const Stream stream(&pool, queue.get(), arena.get());
  Workspace workspace(stream, 80 << 20);
  const Tensor x = resident_tensor(stream, {kMostRows, kSize}, DType::kBFloat16);
  const Tensor weight = resident_tensor(stream, {kOutputs[3], kSize}, DType::kBFloat16);
  const Tensor y = resident_tensor(stream, {kMostRows, kOutputs[3]}, DType::kBFloat16);
  const Tensor sums = resident_tensor(stream, {kSteps}, DType::kInt32);
  const Tensor message = resident_tensor(stream, {kSteps}, DType::kInt32);
  fill_zero(stream, x);
  fill_zero(stream, weight);
  const Tensor ones = Tensor::empty({kSteps}, DType::kInt32);
  for (int i = 0; i < kSteps; ++i) ones.data<int32_t>()[i] = i + rank.rank();
  queue->copy(sums.raw_data(), ones.raw_data(), ones.num_bytes());
  queue->copy(message.raw_data(), ones.raw_data(), ones.num_bytes());
  queue->synchronize();
  for (int step = 0; step < kSteps; ++step) {
    const int64_t rows = 1 + (step * 211 + rank.rank() * 97) % kMostRows;
    const int64_t outputs = kOutputs[(step + rank.rank()) % 4];
    const Workspace::Scope scope(workspace);
    ops::linear(stream,
                x.narrow(0, 0, rows),
                rows_of(weight, outputs),
                Tensor(),
                y.narrow(0, 0, rows).narrow(1, 0, outputs),
                workspace);
    rank.all_reduce(stream, sums.narrow(0, step, 1));
    if (rank.rank() == 0) rank.send(stream, message.narrow(0, step, 1), 1);
    if (rank.rank() == 1) rank.receive(stream, message.narrow(0, step, 1), 0);
  }
  const Tensor summed = Tensor::empty({kSteps}, DType::kInt32);
  const Tensor told = Tensor::empty({kSteps}, DType::kInt32);
  queue->copy(summed.raw_data(), sums.raw_data(), summed.num_bytes());
  queue->copy(told.raw_data(), message.raw_data(), told.num_bytes());
  queue->synchronize();
  ASSERT_TRUE(rank.status().ok()) << rank.status().message();
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_EQ(summed.data<int32_t>()[i], num_ranks * i + num_ranks * (num_ranks - 1) / 2) << i;
    EXPECT_EQ(told.data<int32_t>()[i], rank.rank() == 1 ? i : i + rank.rank());
  }
}

TEST(LinearOfRanks, LibrariesLoadKernelsWhileOthersHaveComeToTheNextExchange) {
  const int num_ranks = num_cards();
  if (num_ranks < 2) GTEST_SKIP() << "several GPUs are needed";
  const std::vector<Device> devices = cards_of(num_ranks);
  auto ranks = make_device_group(devices, std::chrono::seconds(30)).value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] { run(*ranks[rank], devices[rank], num_ranks); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace atom
