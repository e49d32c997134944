#include "server/metrics/metric.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace atom::server {

Histogram::Histogram(std::vector<double> bounds, double parts_per_one)
    : bounds_(std::move(bounds)),
      parts_per_one_(parts_per_one),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {
  CHECK(!bounds_.empty());
  for (size_t i = 0; i < bounds_.size(); ++i) {
    CHECK(std::isfinite(bounds_[i]));
    if (i > 0) CHECK(bounds_[i - 1] < bounds_[i]);
  }
}

void Histogram::observe(double value, uint64_t times) {
  if (!(value >= 0)) value = 0;
  const size_t bucket = static_cast<size_t>(
      std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(times, std::memory_order_relaxed);
  // 2^53 parts are 104 days of nanoseconds: the cap keeps the conversion defined.
  const double parts = std::min(value * parts_per_one_ * static_cast<double>(times) + 0.5, 0x1p53);
  sum_.fetch_add(static_cast<uint64_t>(parts), std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot snapshot;
  snapshot.cumulative.reserve(bounds_.size() + 1);
  uint64_t total = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    snapshot.cumulative.push_back(total);
  }
  snapshot.sum = static_cast<double>(sum_.load(std::memory_order_relaxed)) / parts_per_one_;
  return snapshot;
}

}  // namespace atom::server
