// What the contract of communicator_test.cc leaves open: what another end may do that is no rank of
// ours, or not the one that was expected.
#include "comm/tcp/tcp_communicator.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEnough{20'000};

struct Ends {
  TcpPeer ours;
  TcpPeer theirs;
};

Ends make_ends() {
  Ends ends;
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  ends.ours.data = FileDescriptor(fds[0]);
  ends.theirs.data = FileDescriptor(fds[1]);
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  ends.ours.watch = FileDescriptor(fds[0]);
  ends.theirs.watch = FileDescriptor(fds[1]);
  return ends;
}

std::unique_ptr<Communicator> first_of_two(TcpPeer peer) {
  std::vector<TcpPeer> peers(2);
  peers[1] = std::move(peer);
  return make_tcp_communicator(0, std::move(peers), kEnough);
}

void expect_failure(Communicator* rank, const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  while (rank->status().ok() && std::chrono::steady_clock::now() - begin < kEnough) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_NE(rank->status().message().find(what), std::string::npos) << rank->status().message();
}

TEST(TcpCommunicator, NonsenseEndsTheGroupAndNothingElse) {
  for (const bool on_watch : {false, true}) {
    Ends ends = make_ends();
    const auto rank = first_of_two(std::move(ends.ours));
    const std::string nonsense(100, 'x');
    const int fd = on_watch ? ends.theirs.watch.get() : ends.theirs.data.get();
    ASSERT_EQ(::send(fd, nonsense.data(), nonsense.size(), 0), 100);
    ThreadPool pool(1);
    rank->barrier(Stream(&pool));
    expect_failure(rank.get(), on_watch ? "no message" : "no frame");
  }
}

// Nothing says that it is gone: that is what a cut cable and a stopped process look like.
TEST(TcpCommunicator, ARankThatFallsSilentIsLostInFiveSeconds) {
  Ends ends = make_ends();
  ASSERT_EQ(::send(ends.theirs.watch.get(), "\0\0\0", 4, 0), 4);  // a beat, the last one
  const auto rank = first_of_two(std::move(ends.ours));
  const auto begin = std::chrono::steady_clock::now();
  ThreadPool pool(1);
  rank->barrier(Stream(&pool));
  EXPECT_NE(rank->status().message().find("rank 1 of 2 is lost: nothing was heard"),
            std::string::npos)
      << rank->status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

TEST(TcpCommunicator, RanksThatDoNotDoTheSameAreToldSo) {
  const auto ranks = make_socket_group(2, kEnough);
  const auto other = std::async([&] {
    ThreadPool pool(1);
    const Tensor x = Tensor::zeros({3}, DType::kInt32);
    ranks[1]->all_reduce(Stream(&pool), x, ReduceOp::kMax);
  });
  ThreadPool pool(1);
  const Tensor x = Tensor::zeros({4}, DType::kInt32);
  ranks[0]->all_reduce(Stream(&pool), x);
  other.wait();
  for (const auto& rank : ranks) expect_failure(rank.get(), "all_reduce 0 of");
}

// Longer than what the kernel keeps, both ways at once, with sums in between.
TEST(TcpCommunicator, LongMessagesMayCross) {
  constexpr int64_t kCount = 3 << 20;
  const auto ranks = make_socket_group(2, kEnough);
  const auto exchange = [&](int mine) {
    ThreadPool pool(1);
    const Stream stream(&pool);
    const Tensor x = Tensor::empty({kCount}, DType::kInt32);
    std::fill_n(x.data<int32_t>(), kCount, mine);
    const Tensor y = Tensor::zeros({kCount}, DType::kInt32);
    ranks[mine]->send(stream, x, 1 - mine);
    ranks[mine]->send(stream, x, 1 - mine);
    ranks[mine]->all_reduce(stream, x);
    EXPECT_EQ(x.data<int32_t>()[kCount - 1], 1);
    for (int i = 0; i < 2; ++i) {
      std::fill_n(y.data<int32_t>(), kCount, -1);
      ranks[mine]->receive(stream, y, 1 - mine);
      EXPECT_EQ(y.data<int32_t>()[0], 1 - mine);
      EXPECT_EQ(y.data<int32_t>()[kCount - 1], 1 - mine);
    }
    EXPECT_TRUE(ranks[mine]->status().ok()) << ranks[mine]->status().message();
  };
  const auto other = std::async(std::launch::async, [&] { exchange(1); });
  exchange(0);
  other.wait();
}

}  // namespace
}  // namespace atom
