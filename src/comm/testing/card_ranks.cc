#include <deque>
#include <thread>
#include <utility>

#include "comm/device/device_group.h"
#include "comm/staged/staged_communicator.h"
#include "comm/tcp/tcp_communicator.h"
#include "comm/testing/card_ranks.h"
#include "comm/testing/fake_card.h"

namespace atom {
namespace {

constexpr int64_t kMostBytes = 4 << 20;

// Brings tensors of the host to the card and back.
class ThroughCard : public Communicator {
 public:
  // `owner` of the card, or null.
  ThroughCard(std::unique_ptr<Communicator> inner,
              DeviceRuntime& card,
              std::shared_ptr<DeviceRuntime> owner = nullptr)
      : Communicator(inner->rank(), inner->size()),
        owner_(std::move(owner)),
        inner_(std::move(inner)),
        device_(card.device()),
        pool_(1),
        card_(card),
        queue_(card_.create_queue()),
        stream_(&pool_, queue_.get()),
        first_(card_.allocate(kMostBytes)),
        second_(card_.allocate(kMostBytes)) {}

  // Memory is freed when its card is idle, so the others have to be told first.
  ~ThroughCard() override {
    inner_->fail(unavailable("rank {} of {} has left the group", rank(), size()));
    finish();
  }

  Status status() const override { return inner_->status(); }
  void fail(Status reason) override { inner_->fail(std::move(reason)); }

 protected:
  void do_all_reduce(const Stream&, void* x, int64_t count, DType dtype, ReduceOp op) override {
    const Tensor on_card = upload(first_, x, {count}, dtype);
    inner_->all_reduce(stream_, on_card, op);
    download(on_card, x);
  }
  void do_all_gather(const Stream&, const void* part, void* whole, int64_t bytes) override {
    if (part == static_cast<char*>(whole) + rank() * bytes) {
      const Tensor on_card = upload(second_, whole, {size(), bytes}, DType::kUInt8);
      inner_->all_gather(stream_, on_card.narrow(0, rank(), 1), on_card);
      return download(on_card, whole);
    }
    const Tensor gathered = place(second_, {size(), bytes}, DType::kUInt8);
    inner_->all_gather(stream_, upload(first_, part, {bytes}, DType::kUInt8), gathered);
    download(gathered, whole);
  }
  void do_reduce_scatter(
      const Stream&, void* whole, void* part, int64_t count, DType dtype) override {
    const Tensor sum = place(second_, {count}, dtype);
    inner_->reduce_scatter(stream_, upload(first_, whole, {size(), count}, dtype), sum);
    download(sum, part);
  }
  void do_all_to_all(const Stream&, const void* from, void* to, int64_t bytes) override {
    const Tensor received = place(second_, {size(), bytes}, DType::kUInt8);
    inner_->all_to_all(stream_, upload(first_, from, {size(), bytes}, DType::kUInt8), received);
    download(received, to);
  }
  void do_broadcast(const Stream&, void* x, int64_t bytes, int root) override {
    const Tensor on_card = upload(first_, x, {bytes}, DType::kUInt8);
    inner_->broadcast(stream_, on_card, root);
    download(on_card, x);
  }
  void do_barrier(const Stream&) override {
    card_.make_current();
    inner_->barrier(stream_);
    finish();
  }
  void do_send(const Stream&, const void* x, int64_t bytes, int to) override {
    inner_->send(stream_, upload(first_, x, {bytes}, DType::kUInt8), to);
    finish();
  }
  void do_receive(const Stream&, void* x, int64_t bytes, int from) override {
    const Tensor on_card = place(first_, {bytes}, DType::kUInt8);
    card_.make_current();
    inner_->receive(stream_, on_card, from);
    download(on_card, x);
  }

 private:
  Tensor place(const std::shared_ptr<void>& memory, const Shape& shape, DType dtype) const {
    const Tensor tensor(memory.get(), dtype, shape, memory, device_);
    CHECK(tensor.num_bytes() <= kMostBytes);
    return tensor;
  }
  Tensor upload(const std::shared_ptr<void>& memory,
                const void* data,
                const Shape& shape,
                DType dtype) {
    card_.make_current();
    const Tensor tensor = place(memory, shape, dtype);
    queue_->copy(tensor.raw_data(), data, tensor.num_bytes());
    return tensor;
  }
  void download(const Tensor& tensor, void* to) {
    finish();
    if (!status().ok()) return;
    queue_->copy(to, tensor.raw_data(), tensor.num_bytes());
    finish();
  }
  void finish() { queue_->synchronize(); }

  const std::shared_ptr<DeviceRuntime> owner_;
  const std::unique_ptr<Communicator> inner_;
  const Device device_;
  ThreadPool pool_;
  DeviceRuntime& card_;
  const std::unique_ptr<DeviceQueue> queue_;
  const Stream stream_;
  const std::shared_ptr<void> first_, second_;
};

}  // namespace

int num_cards() {
  const Result<std::span<const DeviceFacts>> cards = device_facts(DeviceType::kCuda);
  return cards.ok() ? static_cast<int>(cards->size()) : 0;
}

std::vector<Device> cards_of(int num_ranks) {
  std::vector<Device> devices;
  const int count = num_cards();
  for (int rank = 0; rank < num_ranks; ++rank) {
    devices.push_back({DeviceType::kCuda, rank % count});
  }
  return devices;
}

void on_cards(const std::vector<std::unique_ptr<Communicator>>& ranks,
              int64_t memory,
              const std::function<void(const CardSeat&)>& body,
              int64_t scratch) {
  const std::vector<Device> devices = cards_of(static_cast<int>(ranks.size()));
  std::vector<std::shared_ptr<void>> memories;
  std::vector<std::unique_ptr<DeviceQueue>> queues;
  std::deque<ThreadPool> pools;
  std::deque<Stream> streams;
  std::deque<Workspace> scratches;
  for (const Device& device : devices) {
    DeviceRuntime& card = *device_runtime(device).value();
    memories.push_back(card.allocate(memory));
    queues.push_back(card.create_queue());
    streams.emplace_back(&pools.emplace_back(1), queues.back().get());
    scratches.push_back(scratch > 0 ? Workspace(streams.back(), scratch) : Workspace());
  }
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] {
      const int r = rank->rank();
      device_runtime(devices[r]).value()->make_current();
      body({*rank, devices[r], *queues[r], streams[r], memories[r], scratches[r]});
      queues[r]->synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Communicator>> make_card_group(int size,
                                                           std::chrono::milliseconds timeout) {
  const std::vector<Device> devices = cards_of(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  Result<std::vector<std::unique_ptr<Communicator>>> group = make_device_group(devices, timeout);
  for (auto& inner : *group) {
    DeviceRuntime& card = *device_runtime(devices[inner->rank()]).value();
    ranks.push_back(std::make_unique<ThroughCard>(std::move(inner), card));
  }
  return ranks;
}

std::vector<std::unique_ptr<Communicator>> make_staged_group(int size,
                                                             std::chrono::milliseconds timeout) {
  const std::vector<Device> devices = num_cards() > 0 ? cards_of(size) : std::vector<Device>();
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (auto& host : make_socket_group(size, timeout)) {
    const std::shared_ptr<DeviceRuntime> fake = devices.empty() ? make_fake_card() : nullptr;
    DeviceRuntime& card = fake ? *fake : *device_runtime(devices[host->rank()]).value();
    ranks.push_back(
        std::make_unique<ThroughCard>(make_staged_communicator(std::move(host), card), card, fake));
  }
  return ranks;
}

}  // namespace atom
