// What is counted while the server works: counters and histograms. Any thread may add; adding is
// wait-free, one atomic addition for a counter and two for a histogram. A reader sees each number
// as of some moment during the read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace atom::server {

class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Buckets fixed at construction. The sum is kept in fixed point, so that it can be added to
// atomically: in parts of which `parts_per_one` make 1, kNanoseconds for seconds.
class Histogram {
 public:
  static constexpr double kNanoseconds = 1e9;
  static constexpr double kWhole = 1;

  // `bounds`: upper bounds of the buckets, included in them, ascending, without infinity.
  Histogram(std::vector<double> bounds, double parts_per_one);

  // `times` observations of `value`. A negative or undefined value counts as 0.
  void observe(double value, uint64_t times = 1);

  struct Snapshot {
    std::vector<uint64_t> cumulative;  // one per bound, and the count of all at the end
    double sum = 0;
  };
  Snapshot snapshot() const;
  std::span<const double> bounds() const { return bounds_; }

 private:
  const std::vector<double> bounds_;
  const double parts_per_one_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // one per bound, and one above the last
  std::atomic<uint64_t> sum_{0};                     // in parts
};

}  // namespace atom::server
