// How many bytes of requests' bodies the server holds, over all connections and whatever has become
// of them: a share is given back when the body is destroyed. Lock-free, any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace atom::server {

class ByteBudget {
 public:
  static constexpr size_t kLarge = 256 << 10;

  explicit ByteBudget(size_t limit) : limit_(limit) {}

  [[nodiscard]] bool try_take(size_t bytes) {
    size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  void give_back(size_t bytes) {
    used_.fetch_sub(bytes);
    if (bytes >= kLarge) large_given_back_.fetch_add(bytes, std::memory_order_relaxed);
  }

  size_t limit() const { return limit_; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  // In shares of kLarge or more, since the start.
  size_t large_given_back() const { return large_given_back_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> large_given_back_{0};
};

// A share of a budget; of none, it is as large as one likes.
class ByteShare {
 public:
  ByteShare() = default;
  explicit ByteShare(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ByteShare(ByteShare&& other) noexcept
      : budget_(std::move(other.budget_)), size_(std::exchange(other.size_, 0)) {}
  ByteShare& operator=(ByteShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ByteShare() {
    if (budget_ != nullptr && size_ > 0) budget_->give_back(size_);
  }

  // False, and unchanged, when the budget has no room for it.
  [[nodiscard]] bool grow_to(size_t size) {
    if (budget_ == nullptr || size <= size_) return true;
    if (!budget_->try_take(size - size_)) return false;
    size_ = size;
    return true;
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  size_t size_ = 0;
};

}  // namespace atom::server
