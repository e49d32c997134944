#include "comm/testing/fake_card.h"

#include <cstring>
#include <deque>
#include <functional>

#include "base/check.h"

namespace atom {
namespace {

constexpr Device kFakeCard{DeviceType::kCuda, 0};

[[noreturn]] void not_faked(const char* what) {
  check_failed(what, "a fake card has none", __FILE__, __LINE__);
}

class FakeQueue : public DeviceQueue {
 public:
  Device device() const override { return kFakeCard; }
  void* handle() const override { return nullptr; }

  void copy(void* to, const void* from, int64_t bytes) override {
    work_.emplace_back([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
    ++num_enqueued_;
  }
  void copy_rows(void*, int64_t, const void*, int64_t, int64_t, int64_t) override {
    not_faked("copy_rows");
  }
  void fill_rows(void*, int64_t, uint8_t, int64_t, int64_t) override { not_faked("fill_rows"); }
  void fill_random(void*, DType, int64_t, const RandomFill&) override { not_faked("fill_random"); }
  void synchronize() override { pass(num_enqueued_); }
  std::unique_ptr<DeviceEvent> create_event() override;
  void delay(std::chrono::nanoseconds) override {}
  void begin_recording() override { not_faked("begin_recording"); }
  Result<std::unique_ptr<DeviceGraph>> end_recording() override { not_faked("end_recording"); }

  int64_t num_enqueued() const { return num_enqueued_; }
  int64_t num_done() const { return num_done_; }
  // Does the first `count` copies of all.
  void pass(int64_t count) {
    for (; num_done_ < count; ++num_done_) {
      work_.front()();
      work_.pop_front();
    }
  }

 private:
  std::deque<std::function<void()>> work_;
  int64_t num_enqueued_ = 0, num_done_ = 0;
};

class FakeEvent : public DeviceEvent {
 public:
  explicit FakeEvent(FakeQueue* queue) : queue_(queue) {}
  void mark() override { place_ = queue_->num_enqueued(); }
  bool is_done() const override { return queue_->num_done() >= place_; }
  void wait() const override { queue_->pass(place_); }
  std::chrono::nanoseconds since(const DeviceEvent&) const override { not_faked("since"); }

 private:
  FakeQueue* queue_;
  int64_t place_ = 0;
};

std::unique_ptr<DeviceEvent> FakeQueue::create_event() {
  return std::make_unique<FakeEvent>(this);
}

class FakeCard : public DeviceRuntime {
 public:
  Device device() const override { return kFakeCard; }
  const DeviceFacts& facts() const override { return facts_; }
  void make_current() const override {}
  bool can_reach(const DeviceRuntime&) const override { return false; }
  Memory memory() const override { not_faked("memory"); }
  std::shared_ptr<void> allocate(int64_t bytes) override {
    return std::shared_ptr<char[]>(new char[static_cast<size_t>(bytes)]);
  }
  int64_t num_allocations() const override { return 0; }
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override { return allocate(bytes); }
  std::unique_ptr<DeviceQueue> create_queue() override { return std::make_unique<FakeQueue>(); }

 private:
  const DeviceFacts facts_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_fake_card() {
  return std::make_unique<FakeCard>();
}

}  // namespace atom
