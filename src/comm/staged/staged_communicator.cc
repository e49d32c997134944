#include "comm/staged/staged_communicator.h"

#include <algorithm>
#include <utility>

namespace atom {
namespace {

constexpr int64_t kLeastBytes = 1 << 20;

// Pinned memory that copies of one queue come to or leave from.
class StagingBuffer {
 public:
  explicit StagingBuffer(DeviceRuntime& card) : card_(card) {}

  // Where nothing is copied to or from any more.
  void* take(const DeviceQueue& queue, int64_t bytes) {
    if (event_ != nullptr) event_->wait();
    if (bytes <= size_) return memory_.get();
    CHECK(queue.device() == card_.device());
    size_ = std::max({bytes, 2 * size_, kLeastBytes});
    memory_ = card_.allocate_pinned(size_);
    return memory_.get();
  }
  // Copies that were enqueued are the last ones for now.
  void mark(DeviceQueue& queue) {
    if (event_ == nullptr) event_ = queue.create_event();
    event_->mark();
  }
  void wait() const { event_->wait(); }

 private:
  DeviceRuntime& card_;
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
  std::unique_ptr<DeviceEvent> event_;
};

class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, DeviceRuntime& card)
      : Communicator(host->rank(), host->size()),
        host_(std::move(host)),
        sent_(card),
        received_(card) {}

  Status status() const override { return host_->status(); }
  void fail(Status reason) override { host_->fail(std::move(reason)); }
  bool goes_through_host() const override { return true; }

 protected:
  void do_all_reduce(
      const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) override {
    const int64_t bytes = count * dtype_size(dtype);
    if (stream.device().is_cpu()) return host_->all_reduce(stream, view(x, dtype, {count}), op);
    void* const staged = download(stream, x, bytes);
    host_->all_reduce(Stream(&stream.pool()), view(staged, dtype, {count}), op);
    upload(stream, sent_, staged, x, bytes);
  }

  void do_all_gather(const Stream& stream, const void* part, void* whole, int64_t bytes) override {
    if (stream.device().is_cpu()) {
      return host_->all_gather(
          stream, view(part, DType::kUInt8, {bytes}), view(whole, DType::kUInt8, {size(), bytes}));
    }
    void* const gathered = received_.take(stream.queue(), size() * bytes);
    void* const staged = download(stream, part, bytes);
    host_->all_gather(Stream(&stream.pool()),
                      view(staged, DType::kUInt8, {bytes}),
                      view(gathered, DType::kUInt8, {size(), bytes}));
    upload(stream, received_, gathered, whole, size() * bytes);
  }

  void do_reduce_scatter(
      const Stream& stream, void* whole, void* part, int64_t count, DType dtype) override {
    if (stream.device().is_cpu()) {
      return host_->reduce_scatter(
          stream, view(whole, dtype, {size(), count}), view(part, dtype, {count}));
    }
    const int64_t bytes = count * dtype_size(dtype);
    void* const sum = received_.take(stream.queue(), bytes);
    void* const staged = download(stream, whole, size() * bytes);
    host_->reduce_scatter(
        Stream(&stream.pool()), view(staged, dtype, {size(), count}), view(sum, dtype, {count}));
    upload(stream, received_, sum, part, bytes);
  }

  void do_all_to_all(const Stream& stream, const void* from, void* to, int64_t bytes) override {
    const Shape shape = {size(), bytes};
    if (stream.device().is_cpu()) {
      return host_->all_to_all(
          stream, view(from, DType::kUInt8, shape), view(to, DType::kUInt8, shape));
    }
    void* const arrived = received_.take(stream.queue(), size() * bytes);
    void* const staged = download(stream, from, size() * bytes);
    host_->all_to_all(Stream(&stream.pool()),
                      view(staged, DType::kUInt8, shape),
                      view(arrived, DType::kUInt8, shape));
    upload(stream, received_, arrived, to, size() * bytes);
  }

  void do_broadcast(const Stream& stream, void* x, int64_t bytes, int root) override {
    if (stream.device().is_cpu()) {
      return host_->broadcast(stream, view(x, DType::kUInt8, {bytes}), root);
    }
    void* const staged = download(stream, x, bytes);
    host_->broadcast(Stream(&stream.pool()), view(staged, DType::kUInt8, {bytes}), root);
    upload(stream, sent_, staged, x, bytes);
  }

  void do_barrier(const Stream& stream) override {
    if (!stream.device().is_cpu()) stream.queue().synchronize();
    host_->barrier(Stream(&stream.pool()));
  }

  void do_send(const Stream& stream, const void* x, int64_t bytes, int to) override {
    if (stream.device().is_cpu()) {
      return host_->send(stream, view(x, DType::kUInt8, {bytes}), to);
    }
    void* const staged = download(stream, x, bytes);
    host_->send(Stream(&stream.pool()), view(staged, DType::kUInt8, {bytes}), to);
  }

  void do_receive(const Stream& stream, void* x, int64_t bytes, int from) override {
    if (stream.device().is_cpu()) {
      return host_->receive(stream, view(x, DType::kUInt8, {bytes}), from);
    }
    void* const arrived = received_.take(stream.queue(), bytes);
    host_->receive(Stream(&stream.pool()), view(arrived, DType::kUInt8, {bytes}), from);
    upload(stream, received_, arrived, x, bytes);
  }

 private:
  static Tensor view(const void* data, DType dtype, const Shape& shape) {
    return Tensor(const_cast<void*>(data), dtype, shape);
  }

  // What the queue has at `from` once it has come so far.
  void* download(const Stream& stream, const void* from, int64_t bytes) {
    void* const staged = sent_.take(stream.queue(), bytes);
    stream.queue().copy(staged, from, bytes);
    sent_.mark(stream.queue());
    sent_.wait();
    return staged;
  }
  static void upload(
      const Stream& stream, StagingBuffer& buffer, const void* staged, void* to, int64_t bytes) {
    stream.queue().copy(to, staged, bytes);
    buffer.mark(stream.queue());
  }

  const std::unique_ptr<Communicator> host_;
  StagingBuffer sent_;      // by this rank, and what becomes of it in place
  StagingBuffer received_;  // from others
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       DeviceRuntime& card) {
  return std::make_unique<StagedCommunicator>(std::move(host), card);
}

}  // namespace atom
