// What the contract of communicator_test.cc leaves open: long sequences without a pause, in
// graphs, large messages, and ranks that are lost while others' kernels wait for them.
#include "comm/device/device_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "comm/reduce.h"
#include "comm/testing/card_ranks.h"

namespace atom {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Ranks = std::vector<std::unique_ptr<Communicator>>;
using Bytes = std::vector<uint8_t>;

constexpr milliseconds kAmple{20'000};

using Seat = CardSeat;
constexpr int64_t kMemory = 32 << 20;

void run(const Ranks& ranks, const std::function<void(const Seat&)>& body) {
  on_cards(ranks, kMemory, body);
}

class DeviceGroup : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (num_cards() == 0) GTEST_SKIP() << "no GPU is here";
  }
  static Ranks make(milliseconds timeout) {
    Result<Ranks> group = make_device_group(cards_of(GetParam()), timeout);
    return std::move(*group);
  }
};

enum class Kind { kReduce, kGather, kScatter, kExchange, kBroadcast, kMessage, kBarrier };

struct Step {
  Kind kind;
  DType dtype;
  ReduceOp op;
  int64_t count;  // elements of a rank's part
  int64_t offset;
  int root;
};

// Two tensors of each rank, as much as a step can fill.
constexpr int64_t kRoom = 1 << 20;

struct Place {
  Bytes first = Bytes(kRoom), second = Bytes(kRoom);
};

std::vector<Step> random_steps(uint32_t seed, int count, int size, bool sums) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % limit); };
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  // Bits of a sum are a number in its own type only.
  const DType dtype = kTypes[below(3)];
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    Step step = {
        static_cast<Kind>(below(7)), sums ? dtype : kTypes[below(3)], ReduceOp::kSum, 0, 0, 0};
    const bool reduces = step.kind == Kind::kReduce || step.kind == Kind::kScatter;
    if (reduces && !sums) step.op = below(2) == 0 ? ReduceOp::kMin : ReduceOp::kMax;
    if (step.kind == Kind::kScatter && !sums) step.kind = Kind::kExchange;
    const int64_t most = kRoom / 2 / dtype_size(step.dtype) / size;
    constexpr int64_t kSizes[] = {1, 7, 64, 2048, 4096, 8192, 16 << 10, 40 << 10, 1 << 20};
    step.count = std::min(most, kSizes[below(9)] + (below(4) == 0 ? below(16) : 0));
    step.offset = below(3) == 0 ? below(64) : 0;
    step.root = static_cast<int>(below(size));
    steps.push_back(step);
  }
  return steps;
}

// What a step does to all ranks' tensors.
void model(const Step& step, std::vector<Place>& places) {
  const int size = static_cast<int>(places.size());
  const int64_t width = dtype_size(step.dtype);
  const int64_t bytes = step.count * width, offset = step.offset * width;
  std::vector<Place> before = places;
  for (int r = 0; r < size; ++r) {
    uint8_t* first = places[r].first.data() + offset;
    uint8_t* second = places[r].second.data() + offset;
    const auto source = [&](int i) { return before[i].first.data() + offset; };
    if (step.kind == Kind::kReduce || step.kind == Kind::kScatter) {
      const bool scatters = step.kind == Kind::kScatter;
      std::vector<const void*> sources;
      for (int i = 0; i < size; ++i) sources.push_back(source(i) + (scatters ? r * bytes : 0));
      void* target = scatters ? second : first;
      reduce_in_order(step.op, step.dtype, sources, {&target, 1}, step.count);
    } else if (step.kind == Kind::kGather) {
      for (int i = 0; i < size; ++i) std::memcpy(second + i * bytes, source(i), bytes);
    } else if (step.kind == Kind::kExchange) {
      for (int i = 0; i < size; ++i) std::memcpy(second + i * bytes, source(i) + r * bytes, bytes);
    } else if (step.kind == Kind::kBroadcast) {
      std::memcpy(first, source(step.root), bytes);
    } else if (step.kind == Kind::kMessage) {
      std::memcpy(second, source((r + size - 1) % size), bytes);
    }
  }
}

class Player {
 public:
  explicit Player(const Seat& seat) : seat_(seat) {}

  void upload(const Place& place) {
    seat_.queue.copy(seat_.tensor({kRoom}, DType::kUInt8).raw_data(), place.first.data(), kRoom);
    seat_.queue.copy(
        seat_.tensor({kRoom}, DType::kUInt8, kRoom).raw_data(), place.second.data(), kRoom);
  }
  Place download() {
    Place place;
    seat_.queue.copy(place.first.data(), seat_.tensor({kRoom}, DType::kUInt8).raw_data(), kRoom);
    seat_.queue.copy(
        place.second.data(), seat_.tensor({kRoom}, DType::kUInt8, kRoom).raw_data(), kRoom);
    seat_.queue.synchronize();
    return place;
  }

  void play(const Step& step) {
    Communicator& rank = seat_.rank;
    const int size = rank.size();
    const Shape part = {step.count}, whole = {size, step.count};
    const Tensor x = at(0, part, step);
    switch (step.kind) {
      case Kind::kReduce:
        return rank.all_reduce(seat_.stream, x, step.op);
      case Kind::kGather:
        return rank.all_gather(seat_.stream, x, at(kRoom, whole, step));
      case Kind::kScatter:
        return rank.reduce_scatter(seat_.stream, at(0, whole, step), at(kRoom, part, step));
      case Kind::kExchange:
        return rank.all_to_all(seat_.stream, at(0, whole, step), at(kRoom, whole, step));
      case Kind::kBroadcast:
        return rank.broadcast(seat_.stream, x, step.root);
      case Kind::kMessage:
        rank.send(seat_.stream, x, (rank.rank() + 1) % size);
        return rank.receive(seat_.stream, at(kRoom, part, step), (rank.rank() + size - 1) % size);
      case Kind::kBarrier:
        return rank.barrier(seat_.stream);
    }
  }

 private:
  Tensor at(int64_t begin, const Shape& shape, const Step& step) const {
    return seat_.tensor(shape, step.dtype, begin + step.offset * dtype_size(step.dtype));
  }

  const Seat& seat_;
};

// Positive numbers in any of the types, so that no sum is a NaN.
std::vector<Place> random_places(uint32_t seed, int size) {
  std::mt19937 random(seed);
  std::vector<Place> places(size);
  for (Place& place : places) {
    for (Bytes* bytes : {&place.first, &place.second}) {
      for (size_t i = 0; i < bytes->size(); i += 2) {
        const auto half = static_cast<uint16_t>(0x1000 + random() % 0x1000);
        std::memcpy(bytes->data() + i, &half, sizeof half);
      }
    }
  }
  return places;
}

void expect_same(const Place& got, const Place& expected, int rank) {
  for (const auto& [a, b] :
       {std::pair{&got.first, &expected.first}, std::pair{&got.second, &expected.second}}) {
    const auto [x, y] = std::mismatch(a->begin(), a->end(), b->begin());
    EXPECT_EQ(x, a->end()) << "rank " << rank << " at byte " << (x - a->begin());
  }
}

TEST_P(DeviceGroup, ComputesRandomSequencesAsTheModelDoes) {
  const int size = GetParam();
  const Ranks ranks = make(kAmple);
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const std::vector<Step> steps = random_steps(seed, 30, size, /*sums=*/true);
    const std::vector<Place> begin = random_places(seed, size);
    std::vector<Place> expected = begin;
    for (const Step& step : steps) model(step, expected);
    run(ranks, [&](const Seat& seat) {
      Player player(seat);
      player.upload(begin[seat.rank.rank()]);
      for (const Step& step : steps) player.play(step);
      const Place end = player.download();
      ASSERT_TRUE(seat.rank.status().ok()) << seat.rank.status().message();
      expect_same(end, expected[seat.rank.rank()], seat.rank.rank());
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(DeviceGroup, GraphsRunAnyNumberOfTimes) {
  const int size = GetParam();
  const Ranks ranks = make(kAmple);
  constexpr int kGraphs = 2, kRounds = 40;
  std::vector<std::vector<Step>> steps;
  for (uint32_t i = 0; i < kGraphs; ++i) steps.push_back(random_steps(100 + i, 25, size, false));
  const std::vector<Place> begin = random_places(7, size);
  std::vector<Place> expected = begin;
  for (int round = 0; round < kRounds; ++round) {
    // One of them twice in a row, and operations between them that no graph has.
    for (const int graph : {0, 1, 1}) {
      for (const Step& step : steps[graph]) model(step, expected);
    }
    model(steps[0][round % steps[0].size()], expected);
  }
  run(ranks, [&](const Seat& seat) {
    Player player(seat);
    player.upload(begin[seat.rank.rank()]);
    std::vector<std::unique_ptr<DeviceGraph>> graphs;
    for (const std::vector<Step>& recorded : steps) {
      seat.queue.begin_recording();
      for (const Step& step : recorded) player.play(step);
      graphs.push_back(seat.queue.end_recording().value());
    }
    for (int round = 0; round < kRounds; ++round) {
      for (const int graph : {0, 1, 1}) graphs[graph]->launch();
      player.play(steps[0][round % steps[0].size()]);
    }
    const Place end = player.download();
    ASSERT_TRUE(seat.rank.status().ok()) << seat.rank.status().message();
    expect_same(end, expected[seat.rank.rank()], seat.rank.rank());
  });
}

// Every operation follows the one before it at once; each value shows if one was missed.
TEST_P(DeviceGroup, ThousandsOfSmallSumsAreAllRight) {
  constexpr int kGraphSums = 100, kReplays = 100;
  const int size = GetParam();
  if (size > num_cards()) GTEST_SKIP() << "long graphs of ranks that share a card take turns";
  for (const int64_t count : {4, 512, 8192, 70'000}) {
    const Ranks ranks = make(kAmple);
    run(ranks, [&](const Seat& seat) {
      const Tensor x = seat.tensor({count}, DType::kInt32);
      const Tensor largest = seat.tensor({count}, DType::kInt32, x.num_bytes());
      std::vector<int32_t> host(count);
      for (int64_t i = 0; i < count; ++i) {
        host[i] = static_cast<int32_t>((i * 7 + seat.rank.rank() * 3) % 11);
      }
      seat.queue.copy(x.raw_data(), host.data(), x.num_bytes());
      seat.queue.fill_zero(largest.raw_data(), x.num_bytes());
      seat.queue.synchronize();
      seat.queue.begin_recording();
      for (int i = 0; i < kGraphSums; ++i) {
        // The largest of x stays what it is; a sum of it would not.
        seat.rank.all_reduce(seat.stream, x, ReduceOp::kMax);
        seat.queue.copy(largest.raw_data(), x.raw_data(), x.num_bytes());
        seat.rank.all_reduce(seat.stream, largest);
      }
      const std::unique_ptr<DeviceGraph> graph = seat.queue.end_recording().value();
      for (int i = 0; i < kReplays; ++i) {
        seat.rank.meet_all();
        graph->launch();
      }
      std::vector<int32_t> sums(count);
      seat.queue.copy(sums.data(), largest.raw_data(), x.num_bytes());
      seat.queue.synchronize();
      ASSERT_TRUE(seat.rank.status().ok()) << seat.rank.status().message();
      for (int64_t i = 0; i < count; ++i) {
        int32_t most = 0;
        for (int r = 0; r < size; ++r) {
          most = std::max(most, static_cast<int32_t>((i * 7 + r * 3) % 11));
        }
        ASSERT_EQ(sums[i], size * most) << i;
      }
    });
  }
}

TEST_P(DeviceGroup, MessagesMayBeLargerThanWhatWaits) {
  const Ranks ranks = make(kAmple);
  for (const int64_t bytes : {1, 15, 4097, (20 << 20) + 3}) {
    run(ranks, [&](const Seat& seat) {
      const int r = seat.rank.rank();
      if (r > 1) return;
      const Tensor x = seat.tensor({bytes}, DType::kUInt8);
      Bytes host(bytes);
      for (int round = 0; round < 5; ++round) {
        for (int64_t i = 0; i < bytes; ++i) host[i] = static_cast<uint8_t>(i * 31 + round);
        if (r == 0) {
          seat.queue.copy(x.raw_data(), host.data(), bytes);
          seat.rank.send(seat.stream, x, 1);
          seat.queue.synchronize();
          continue;
        }
        Bytes got(bytes);
        seat.rank.receive(seat.stream, x, 0);
        seat.queue.copy(got.data(), x.raw_data(), bytes);
        seat.queue.synchronize();
        ASSERT_TRUE(seat.rank.status().ok()) << seat.rank.status().message();
        ASSERT_TRUE(got == host);
      }
    });
  }
}

TEST_P(DeviceGroup, ARankThatIsLostEndsTheGraphsOfTheOthers) {
  const int size = GetParam();
  const Ranks ranks = make(milliseconds(300));
  const Clock::time_point begin = Clock::now();
  run(ranks, [&](const Seat& seat) {
    seat.queue.begin_recording();
    for (const int64_t count : {100, 1000, 100'000}) {
      seat.rank.all_reduce(seat.stream, seat.tensor({count}, DType::kFloat32));
    }
    const std::unique_ptr<DeviceGraph> graph = seat.queue.end_recording().value();
    const bool is_lost = seat.rank.rank() + 1 == size;
    for (int i = 0; i < (is_lost ? 5 : 30); ++i) graph->launch();
    seat.queue.synchronize();
    if (is_lost) return;
    EXPECT_EQ(seat.rank.status().code(), StatusCode::kUnavailable);
    const std::string lost = "for rank " + std::to_string(size - 1);
    EXPECT_NE(seat.rank.status().message().find(lost), std::string::npos)
        << seat.rank.status().message();
  });
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
}

TEST_P(DeviceGroup, FailingEndsWhoWaits) {
  const Ranks ranks = make(kAmple);
  const Clock::time_point begin = Clock::now();
  run(ranks, [&](const Seat& seat) {
    if (seat.rank.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(100));
      return seat.rank.fail(internal_error("the disk is gone"));
    }
    const Tensor x = seat.tensor({16}, DType::kFloat32);
    seat.rank.all_reduce(seat.stream, x);
    seat.rank.receive(seat.stream, x, 0);
    seat.queue.synchronize();
    EXPECT_NE(seat.rank.status().message().find("the disk is gone"), std::string::npos);
  });
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
}

TEST_P(DeviceGroup, TensorsOfTheHostAreExchangedToo) {
  const Ranks ranks = make(kAmple);
  run(ranks, [&](const Seat& seat) {
    ThreadPool pool(1);
    const Tensor x = Tensor::empty({1}, DType::kInt64);
    *x.data<int64_t>() = seat.rank.rank() + 5;
    seat.rank.all_reduce(Stream(&pool), x, ReduceOp::kMin);
    EXPECT_EQ(*x.data<int64_t>(), 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceGroup, testing::Values(2, 3, 4));

}  // namespace
}  // namespace atom
