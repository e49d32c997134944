#include "comm/device/host_gate.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAmple{20'000};
constexpr milliseconds kLittle{50};

void run(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(HostGate, NobodyGoesOnBeforeTheLastHasCome) {
  constexpr int kRanks = 3, kRounds = 2000;
  HostGate gate(kRanks, kAmple, 10);
  std::atomic<int> num_come{0};
  run(kRanks, [&](int rank) {
    for (int i = 1; i <= kRounds; ++i) {
      ++num_come;
      EXPECT_FALSE(gate.meet_all(rank));
      EXPECT_GE(num_come.load(), kRanks * i);
    }
  });
}

TEST(HostGate, AReceiverWaitsForTheSenderAndNotTheOtherWayRound) {
  HostGate gate(2, kAmple, 100);
  std::atomic<int> num_sent{0};
  run(2, [&](int rank) {
    for (int i = 0; i < 500; ++i) {
      if (rank == 0) {
        EXPECT_FALSE(gate.before_send(0, 1, 3));
        ++num_sent;
        gate.after_send(0, 1, 3);
      } else {
        EXPECT_FALSE(gate.before_receive(0, 1, 3));
        EXPECT_GT(num_sent.load(), i);
      }
    }
  });
  // As much as there is room for needs no receiver; one more does.
  HostGate alone(2, kLittle, 100);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(alone.before_send(0, 1, 10));
    alone.after_send(0, 1, 10);
  }
  EXPECT_EQ(alone.before_send(0, 1, 1), 1);
  EXPECT_FALSE(alone.before_receive(0, 1, 10));
  EXPECT_FALSE(alone.before_send(0, 1, 10));
}

TEST(HostGate, AMessageThatDoesNotFitWaitsForItsOwnReceiver) {
  HostGate gate(2, kAmple, 100);
  std::atomic<bool> receives{false};
  run(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_FALSE(gate.before_send(0, 1, 1000));
      EXPECT_TRUE(receives.load());
      gate.after_send(0, 1, 1000);
    } else {
      std::this_thread::sleep_for(milliseconds(20));
      receives = true;
      EXPECT_FALSE(gate.before_receive(0, 1, 1000));
    }
  });
}

TEST(HostGate, InARowNeighborsMeetAndNoOthers) {
  HostGate gate(3, kLittle, 1);
  run(3, [&](int rank) {
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(gate.meet_neighbors(rank));
  });
  // The third one is not waited for by the first.
  run(2, [&](int rank) {
    const HostGate::Missing missing = gate.meet_neighbors(rank);
    EXPECT_EQ(missing, rank == 0 ? std::nullopt : HostGate::Missing(2));
  });
}

TEST(HostGate, WhoDoesNotComeIsNamedAndAClosedGateLetsAllPass) {
  HostGate gate(3, kLittle, 1);
  run(2, [&](int rank) { EXPECT_EQ(gate.meet_all(rank), 2); });
  EXPECT_EQ(gate.before_receive(2, 0, 1), 2);
  HostGate closed(2, kAmple, 1);
  run(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_FALSE(closed.meet_all(0));
    } else {
      std::this_thread::sleep_for(milliseconds(20));
      closed.close();
    }
  });
  EXPECT_FALSE(closed.before_receive(1, 0, 1));
  EXPECT_FALSE(closed.meet_neighbors(0));
}

}  // namespace
}  // namespace atom
