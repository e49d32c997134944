// The contract of comm/communicator.h, for every transport.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "comm/local/local_group.h"
#include "comm/tcp/mesh.h"
#include "comm/tcp/tcp_communicator.h"
#include "comm/testing/card_ranks.h"
#include "tensor/numeric.h"

namespace atom {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<std::unique_ptr<Communicator>>;

constexpr milliseconds kPatient{20'000};

struct Transport {
  const char* name;
  Ranks (*make)(int size, milliseconds timeout);
};

// As processes come together, but as threads of this one.
Ranks make_tcp_group(int size, milliseconds timeout) {
  MeshOptions options;
  options.num_processes = size;
  options.address = "127.0.0.1";
  options.secret = "the secret of a test";
  std::promise<uint16_t> port;
  Ranks ranks(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) options.port = port.get_future().get();
    options.process = rank;
    if (rank == 0) options.on_listening = [&](uint16_t at) { port.set_value(at); };
    threads.emplace_back([&ranks, options, rank, timeout] {
      Result<std::unique_ptr<Communicator>> joined = join_tcp_group(options, timeout);
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      ranks[rank] = std::move(*joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

const Transport kTransports[] = {{"local", make_local_group},
                                 {"device", make_card_group},
                                 {"sockets", make_socket_group},
                                 {"staged", make_staged_group},
                                 {"tcp", make_tcp_group}};

class CommunicatorContract : public testing::TestWithParam<Transport> {
 protected:
  using Body = std::function<void(Communicator&, const Stream&)>;

  void SetUp() override {
    if (GetParam().make == make_card_group && num_cards() == 0) GTEST_SKIP() << "no GPU is here";
  }

  // Each rank on a thread of its own.
  static void run(const Ranks& ranks, const Body& body) {
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) {
      threads.emplace_back([&] {
        ThreadPool pool(1);
        body(*rank, Stream(&pool));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static void run(int size, const Body& body) {
    const Ranks ranks = GetParam().make(size, kPatient);
    run(ranks, [&](Communicator& rank, const Stream& stream) {
      body(rank, stream);
      EXPECT_TRUE(rank.status().ok()) << rank.status().message();
    });
  }
};

float value(int rank, int64_t i) {
  return static_cast<float>((rank * 131 + i * 7919) % 1013) * 0.37f - 100.0f;
}

template <typename T>
Tensor filled(int rank, int64_t count, DType dtype) {
  const Tensor tensor = Tensor::empty({count}, dtype);
  for (int64_t i = 0; i < count; ++i) tensor.data<T>()[i] = from_float<T>(value(rank, i));
  return tensor;
}

Tensor ints(const std::vector<int32_t>& values, const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, DType::kInt32);
  std::copy(values.begin(), values.end(), tensor.data<int32_t>());
  return tensor;
}

std::vector<int32_t> values_of(const Tensor& tensor) {
  return {tensor.data<int32_t>(), tensor.data<int32_t>() + tensor.num_elements()};
}

template <typename T>
void expect_sum(const Tensor& tensor, int size, int64_t first = 0) {
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    float sum = to_float(from_float<T>(value(0, first + i)));
    for (int rank = 1; rank < size; ++rank) sum += to_float(from_float<T>(value(rank, first + i)));
    ASSERT_EQ(to_float(tensor.data<T>()[i]), to_float(from_float<T>(sum))) << i;
  }
}

TEST_P(CommunicatorContract, AllReduceAddsInTheOrderOfRanks) {
  for (const int size : {2, 3, 4}) {
    for (const int64_t count : {1, 2, 7, 4096, 100'003}) {
      run(size, [&](Communicator& rank, const Stream& stream) {
        const Tensor x = filled<float>(rank.rank(), count, DType::kFloat32);
        rank.all_reduce(stream, x);
        expect_sum<float>(x, size);
        const Tensor half = filled<BFloat16>(rank.rank(), count, DType::kBFloat16);
        rank.all_reduce(stream, half);
        expect_sum<BFloat16>(half, size);
      });
    }
  }
}

TEST_P(CommunicatorContract, AllReduceFindsTheLeastAndTheLargest) {
  run(3, [](Communicator& rank, const Stream& stream) {
    const int32_t mine = 10 * (rank.rank() == 1 ? -1 : rank.rank());
    const Tensor least = ints({mine, 7}, {2});
    rank.all_reduce(stream, least, ReduceOp::kMin);
    EXPECT_EQ(values_of(least), (std::vector<int32_t>{-10, 7}));
    const Tensor largest = ints({mine, 7}, {2});
    rank.all_reduce(stream, largest, ReduceOp::kMax);
    EXPECT_EQ(values_of(largest), (std::vector<int32_t>{20, 7}));
  });
}

TEST_P(CommunicatorContract, AllGatherConcatenates) {
  run(3, [](Communicator& rank, const Stream& stream) {
    const Tensor whole = Tensor::zeros({3, 2}, DType::kInt32);
    rank.all_gather(stream, ints({rank.rank(), 10 + rank.rank()}, {2}), whole);
    EXPECT_EQ(values_of(whole), (std::vector<int32_t>{0, 10, 1, 11, 2, 12}));
  });
}

TEST_P(CommunicatorContract, AllGatherTakesAPartThatIsInPlace) {
  run(4, [](Communicator& rank, const Stream& stream) {
    const Tensor whole = Tensor::zeros({4, 1}, DType::kInt32);
    whole.data<int32_t>()[rank.rank()] = 5 + rank.rank();
    rank.all_gather(stream, whole.narrow(0, rank.rank(), 1), whole);
    EXPECT_EQ(values_of(whole), (std::vector<int32_t>{5, 6, 7, 8}));
  });
}

TEST_P(CommunicatorContract, ReduceScatterGivesEachRankItsSum) {
  constexpr int64_t kCount = 40'000;
  run(3, [](Communicator& rank, const Stream& stream) {
    const Tensor whole = filled<float>(rank.rank(), 3 * kCount, DType::kFloat32);
    const Tensor part = Tensor::empty({kCount}, DType::kFloat32);
    rank.reduce_scatter(stream, whole.view({3, kCount}), part);
    expect_sum<float>(part, 3, rank.rank() * kCount);
  });
}

TEST_P(CommunicatorContract, AllToAllTransposes) {
  run(3, [](Communicator& rank, const Stream& stream) {
    const int32_t r = rank.rank();
    const Tensor to = Tensor::zeros({3, 1}, DType::kInt32);
    rank.all_to_all(stream, ints({10 * r, 10 * r + 1, 10 * r + 2}, {3, 1}), to);
    EXPECT_EQ(values_of(to), (std::vector<int32_t>{r, 10 + r, 20 + r}));
  });
}

TEST_P(CommunicatorContract, BroadcastGivesTheRootsValues) {
  run(3, [](Communicator& rank, const Stream& stream) {
    for (int root = 0; root < 3; ++root) {
      const Tensor x = ints({100 * rank.rank() + root}, {1});
      rank.broadcast(stream, x, root);
      EXPECT_EQ(values_of(x), (std::vector<int32_t>{101 * root}));
    }
  });
}

TEST_P(CommunicatorContract, MessagesArriveInOrder) {
  run(3, [](Communicator& rank, const Stream& stream) {
    const int next = (rank.rank() + 1) % 3, previous = (rank.rank() + 2) % 3;
    for (int32_t i = 0; i < 20; ++i) rank.send(stream, ints({i, rank.rank()}, {2}), next);
    for (int32_t i = 0; i < 20; ++i) {
      const Tensor x = Tensor::empty({2}, DType::kInt32);
      rank.receive(stream, x, previous);
      EXPECT_EQ(values_of(x), (std::vector<int32_t>{i, previous}));
    }
  });
}

TEST_P(CommunicatorContract, NobodyPassesABarrierBeforeTheLastHasCome) {
  std::atomic<int> num_come{0};
  run(4, [&](Communicator& rank, const Stream& stream) {
    for (int i = 1; i <= 200; ++i) {
      ++num_come;
      rank.barrier(stream);
      EXPECT_GE(num_come.load(), 4 * i);
      rank.barrier(stream);
    }
  });
}

// What one operation reads must not be what the next one writes.
TEST_P(CommunicatorContract, OperationsFollowEachOtherWithoutRaces) {
  run(4, [](Communicator& rank, const Stream& stream) {
    const Tensor x = Tensor::empty({3}, DType::kInt32);
    const Tensor whole = Tensor::empty({4, 3}, DType::kInt32);
    for (int32_t i = 0; i < 500; ++i) {
      std::fill_n(x.data<int32_t>(), 3, rank.rank() + i);
      rank.all_gather(stream, x, whole);
      rank.all_reduce(stream, x);
      EXPECT_EQ(x.data<int32_t>()[2], 6 + 4 * i);
      EXPECT_EQ(whole.data<int32_t>()[11], 3 + i);
      rank.broadcast(stream, x, i % 4);
    }
  });
}

TEST_P(CommunicatorContract, DryRunsAndSingleRanksExchangeNothing) {
  const Ranks ranks = GetParam().make(2, kPatient);
  const Stream dry = Stream::dry_run();
  const Tensor meta = Tensor::meta({2, 3}, DType::kFloat32);
  ranks[0]->all_reduce(dry, meta);
  ranks[0]->all_gather(dry, Tensor::meta({3}, DType::kFloat32), meta);
  ranks[0]->receive(dry, meta, 1);
  ranks[0]->barrier(dry);
  EXPECT_TRUE(ranks[0]->status().ok());

  run(1, [](Communicator& alone, const Stream& stream) {
    const Tensor x = ints({3, 4}, {2});
    const Tensor whole = Tensor::zeros({1, 2}, DType::kInt32);
    alone.all_reduce(stream, x);
    alone.all_gather(stream, x, whole);
    EXPECT_EQ(values_of(whole), (std::vector<int32_t>{3, 4}));
  });
}

using Clock = std::chrono::steady_clock;

TEST_P(CommunicatorContract, ARankThatLeavesEndsTheOthers) {
  Ranks ranks = GetParam().make(3, kPatient);
  const Clock::time_point begin = Clock::now();
  run(ranks, [&](Communicator& rank, const Stream& stream) {
    const Tensor x = Tensor::zeros({1000}, DType::kFloat32);
    for (int i = 0; rank.status().ok(); ++i) {
      if (rank.rank() == 1 && i == 5) return ranks[1].reset();
      rank.all_reduce(stream, x);
    }
    EXPECT_EQ(rank.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(rank.status().message().find("rank 1"), std::string::npos) << rank.status().message();
    rank.all_reduce(stream, x);  // returns at once
    rank.receive(stream, x, (rank.rank() + 1) % 3);
  });
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
}

TEST_P(CommunicatorContract, ARankThatFailsTellsTheOthersWhy) {
  const Ranks ranks = GetParam().make(3, kPatient);
  run(ranks, [](Communicator& rank, const Stream& stream) {
    if (rank.rank() == 2) return rank.fail(internal_error("the disk is gone"));
    rank.barrier(stream);
    EXPECT_NE(rank.status().message().find("the disk is gone"), std::string::npos);
  });
}

TEST_P(CommunicatorContract, ARankThatDoesNotComeIsNotWaitedForForEver) {
  for (const bool message : {false, true}) {
    const Ranks ranks = GetParam().make(2, milliseconds(200));
    const Clock::time_point begin = Clock::now();
    run(ranks, [&](Communicator& rank, const Stream& stream) {
      if (rank.rank() == 1) return;
      const Tensor x = Tensor::zeros({4}, DType::kFloat32);
      message ? rank.receive(stream, x, 1) : rank.all_reduce(stream, x);
      EXPECT_EQ(rank.status().code(), StatusCode::kUnavailable) << rank.status().message();
    });
    // It is told, which takes a moment between processes.
    while (ranks[1]->status().ok() && Clock::now() - begin < milliseconds(5000)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_FALSE(ranks[1]->status().ok());
    EXPECT_GE(Clock::now() - begin, milliseconds(200));
    EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         CommunicatorContract,
                         testing::ValuesIn(kTransports),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace atom
