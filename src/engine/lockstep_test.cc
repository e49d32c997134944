#include "engine/lockstep.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "comm/local/local_group.h"

namespace atom {
namespace {

Result<StepSignals> agree(Lockstep& lockstep, const StepSignals& own) {
  lockstep.start(own);
  for (;;) {
    if (auto agreed = lockstep.wait_until(Lockstep::Clock::now() + std::chrono::milliseconds(5)))
      return *agreed;
  }
}

void on_copies(int count, const std::function<void(int, Lockstep&)>& run) {
  const auto group = make_local_group(count, std::chrono::seconds(20));
  std::vector<std::thread> threads;
  for (int copy = 0; copy < count; ++copy) {
    threads.emplace_back([&, copy] {
      Lockstep lockstep(group[copy].get());
      run(copy, lockstep);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Copies whose work comes at random: each does as many steps as any other, of the same phases, and
// all end together, when none has work.
TEST(Lockstep, CopiesWithRandomArrivalsDoTheSameSteps) {
  for (const int count : {2, 3, 4}) {
    std::vector<std::vector<int64_t>> phases(count);
    std::vector<int> num_done(count);
    on_copies(count, [&](int copy, Lockstep& lockstep) {
      std::mt19937 random(static_cast<uint32_t>(count * 10 + copy));
      int num_left = 0, num_to_come = 20;
      for (;;) {
        if (num_to_come > 0 && random() % 3 == 0) {
          --num_to_come;
          num_left += static_cast<int>(random() % 4);
        }
        const bool is_over = num_to_come == 0;
        const Result<StepSignals> agreed =
            agree(lockstep, {num_left > 2, num_left, num_left > 0 || num_to_come > 0, is_over});
        ASSERT_TRUE(agreed.ok()) << agreed.status().message();
        phases[copy].push_back(agreed->has_prefill << 32 | agreed->num_tokens);
        if (agreed->shutdown != 0 && agreed->has_unfinished == 0) break;
        if (agreed->has_unfinished != 0 && num_left > 0) --num_left;
      }
      num_done[copy] = num_left + num_to_come;
    });
    for (int copy = 0; copy < count; ++copy) {
      EXPECT_EQ(phases[copy], phases[0]);
      EXPECT_EQ(num_done[copy], 0);
    }
    EXPECT_GT(phases[0].size(), 20u);
  }
}

TEST(Lockstep, WaitingForASlowCopyIsNoError) {
  on_copies(2, [&](int copy, Lockstep& lockstep) {
    if (copy == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lockstep.start({0, copy, 0, 0});
    int num_waits = 0;
    auto agreed = lockstep.wait_until(Lockstep::Clock::now());
    for (; !agreed;
         agreed = lockstep.wait_until(Lockstep::Clock::now() + std::chrono::milliseconds(5))) {
      ++num_waits;
    }
    ASSERT_TRUE(agreed->ok());
    EXPECT_EQ((**agreed).num_tokens, 1);
    if (copy == 0) {
      EXPECT_GT(num_waits, 1);
    }
  });
}

TEST(Lockstep, ACopyThatIsLostEndsTheOthersExchange) {
  const auto group = make_local_group(3, std::chrono::seconds(60));
  std::vector<std::unique_ptr<Lockstep>> copies;
  for (const auto& rank : group) copies.push_back(std::make_unique<Lockstep>(rank.get()));
  copies[0]->start({});
  copies[1]->start({});
  EXPECT_FALSE(copies[0]->wait_until(Lockstep::Clock::now() + std::chrono::milliseconds(20)));
  const auto lost = Lockstep::Clock::now();
  copies[2]->fail(unavailable("copy 2 is gone"));
  for (const int copy : {0, 1}) {
    const auto agreed = copies[copy]->wait_until(lost + std::chrono::seconds(10));
    ASSERT_TRUE(agreed);
    EXPECT_EQ(agreed->status().message(), "copy 2 is gone");
  }
  EXPECT_LT(Lockstep::Clock::now() - lost, std::chrono::seconds(1));
}

}  // namespace
}  // namespace atom
