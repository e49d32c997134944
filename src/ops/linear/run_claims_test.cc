#include "ops/linear/run_claims.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace atom::ops {
namespace {

TEST(RunClaims, EveryItemOnce) {
  ThreadPool pool(3);
  for (int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> counts(n);
    RunClaims claims(n, pool.num_threads());
    pool.run([&](int worker) {
      for (int64_t i = claims.claim(worker); i >= 0; i = claims.claim(worker)) ++counts[i];
    });
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(counts[i], 1) << i;
  }
}

TEST(RunClaims, OneWorkerTakesAll) {
  RunClaims claims(10, 4);
  std::vector<bool> seen(10);
  for (int i = 0; i < 10; ++i) seen[claims.claim(2)] = true;
  EXPECT_EQ(claims.claim(2), -1);
  EXPECT_EQ(seen, std::vector<bool>(10, true));
}

}  // namespace
}  // namespace atom::ops
