// How many sequences the server lets in: what runs and what may wait. Lock-free, any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace atom::server {

class Admission {
 public:
  explicit Admission(int64_t limit) : limit_(limit) {}

  [[nodiscard]] bool try_enter(int64_t num_sequences, int64_t limit) {
    int64_t current = current_.load(std::memory_order_relaxed);
    do {
      if (num_sequences > limit - current) return false;
    } while (!current_.compare_exchange_weak(current, current + num_sequences));
    return true;
  }
  void leave(int64_t num_sequences) { current_.fetch_sub(num_sequences); }

  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }
  bool is_full() const { return current_.load(std::memory_order_relaxed) >= limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> current_{0};
};

// Places taken, given back at the end of its life.
class AdmissionTicket {
 public:
  AdmissionTicket() = default;
  AdmissionTicket(const AdmissionTicket&) = delete;
  AdmissionTicket& operator=(const AdmissionTicket&) = delete;
  AdmissionTicket(AdmissionTicket&& other) noexcept
      : admission_(other.admission_), size_(other.size_) {
    other.admission_ = nullptr;
  }
  AdmissionTicket& operator=(AdmissionTicket&& other) noexcept {
    if (this != &other) {
      give_back();
      admission_ = other.admission_;
      size_ = other.size_;
      other.admission_ = nullptr;
    }
    return *this;
  }
  ~AdmissionTicket() { give_back(); }

  // Places held.
  int64_t size() const { return admission_ == nullptr ? 0 : size_; }
  // False, and nothing taken, when there is no room for `size` in all.
  [[nodiscard]] bool resize(Admission* admission, int64_t size, int64_t limit) {
    const int64_t held = this->size();
    if (size > held && !admission->try_enter(size - held, limit)) return false;
    if (size < held) admission->leave(held - size);
    admission_ = admission;
    size_ = size;
    return true;
  }
  void give_back() {
    if (admission_ != nullptr) admission_->leave(size_);
    admission_ = nullptr;
  }

 private:
  Admission* admission_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace atom::server
