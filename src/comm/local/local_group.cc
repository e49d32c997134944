#include "comm/local/local_group.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "comm/local/meeting.h"
#include "comm/reduce.h"

namespace atom {
namespace {

// Elements of one task of a reduction, a multiple of any cache line.
constexpr int64_t kReduceGrain = 16 << 10;

enum class Operation { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kBarrier };

// What a rank brings to an operation.
struct Contribution {
  Operation operation = Operation::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  DType dtype = DType::kInt8;
  int64_t size = 0;  // bytes, or elements of `dtype`
  int root = 0;
  const void* from = nullptr;
  void* to = nullptr;

  bool fits(const Contribution& other) const {
    return operation == other.operation && reduce_op == other.reduce_op && dtype == other.dtype &&
           size == other.size && root == other.root;
  }
};

struct alignas(64) Seat {
  Contribution contribution;
};

using Message = std::vector<char>;

// What all ranks share.
class LocalGroup {
 public:
  LocalGroup(int size, std::chrono::milliseconds timeout)
      : timeout_(timeout), meeting_(size), seats_(size), mail_(size_t(size) * size) {}

  int size() const { return static_cast<int>(seats_.size()); }
  const Contribution& of(int rank) const { return seats_[rank].contribution; }

  // All ranks have come with what they bring; false when the group has failed.
  bool gather(int rank, const Contribution& contribution) {
    seats_[rank].contribution = contribution;
    if (!meet(rank)) return false;
    CHECK(contribution.fits(of(0)));
    return true;
  }

  // All ranks are done with what the others brought.
  bool meet(int rank) {
    if (meeting_.meet(timeout_)) return true;
    if (status().ok()) fail(lost("others", rank));
    return false;
  }

  void post(int from, int to, Message message) {
    {
      const MutexLock lock(&mutex_);
      mail_[from * size() + to].push_back(std::move(message));
    }
    arrived_.notify_all();
  }

  // None when the group has failed.
  std::optional<Message> take(int from, int to) {
    const auto end = std::chrono::steady_clock::now() + timeout_;
    MutexLock lock(&mutex_);
    std::deque<Message>& box = mail_[from * size() + to];
    while (box.empty() && failure_.ok()) {
      if (arrived_.wait_until(&lock, end) == std::cv_status::no_timeout) continue;
      if (!box.empty() || !failure_.ok()) break;
      lock.unlock();
      fail(lost("rank " + std::to_string(from), to));
      return std::nullopt;
    }
    if (!failure_.ok()) return std::nullopt;
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

  Status status() const {
    const MutexLock lock(&mutex_);
    return failure_;
  }

  void fail(Status reason) {
    CHECK(!reason.ok());
    {
      const MutexLock lock(&mutex_);
      if (failure_.ok()) failure_ = std::move(reason);
    }
    meeting_.cancel();
    arrived_.notify_all();
  }

  void leave(int rank) { fail(unavailable("rank {} of {} has left the group", rank, size())); }

 private:
  Status lost(const std::string& who, int waiting) const {
    return unavailable(
        "rank {} of {} waited {} ms for {}: lost", waiting, size(), timeout_.count(), who);
  }

  const std::chrono::milliseconds timeout_;
  Meeting meeting_;
  std::vector<Seat> seats_;  // written by their ranks before a meeting, read by others after it
  mutable Mutex mutex_;
  Condition arrived_;
  std::vector<std::deque<Message>> mail_ GUARDED_BY(mutex_);  // [from, to]
  Status failure_ GUARDED_BY(mutex_);
};

const char* at(const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset;
}

char* at(void* data, int64_t offset) {
  return static_cast<char*>(data) + offset;
}

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<LocalGroup> group)
      : Communicator(rank, group->size()), group_(std::move(group)) {}
  ~LocalCommunicator() override { group_->leave(rank()); }

  Status status() const override { return group_->status(); }
  void fail(Status reason) override { group_->fail(std::move(reason)); }

 protected:
  void do_all_reduce(
      const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) override {
    if (!group_->gather(rank(), {Operation::kAllReduce, op, dtype, count, 0, x, x})) return;
    const auto [begin, end] = share(count);
    reduce(stream, op, dtype, begin, end);
    group_->meet(rank());
  }

  void do_all_gather(const Stream&, const void* part, void* whole, int64_t bytes) override {
    if (!group_->gather(rank(), contribution(Operation::kAllGather, bytes, part, whole))) return;
    for (int i = 0; i < size(); ++i) {
      std::memmove(at(whole, i * bytes), group_->of(i).from, bytes);
    }
    group_->meet(rank());
  }

  void do_reduce_scatter(
      const Stream& stream, void* whole, void* part, int64_t count, DType dtype) override {
    const Contribution mine = {
        Operation::kReduceScatter, ReduceOp::kSum, dtype, count, 0, whole, part};
    if (!group_->gather(rank(), mine)) return;
    const int64_t first = rank() * count;
    stream.pool().parallel_for(count, kReduceGrain, [&](int64_t begin, int64_t end) {
      void* target = at(part, begin * dtype_size(dtype));
      reduce_in_order(ReduceOp::kSum,
                      dtype,
                      sources_at((first + begin) * dtype_size(dtype)),
                      {&target, 1},
                      end - begin);
    });
    group_->meet(rank());
  }

  void do_all_to_all(const Stream&, const void* from, void* to, int64_t bytes) override {
    if (!group_->gather(rank(), contribution(Operation::kAllToAll, bytes, from, to))) return;
    for (int i = 0; i < size(); ++i) {
      std::memcpy(at(to, i * bytes), at(group_->of(i).from, rank() * bytes), bytes);
    }
    group_->meet(rank());
  }

  void do_broadcast(const Stream&, void* x, int64_t bytes, int root) override {
    Contribution mine = contribution(Operation::kBroadcast, bytes, x, x);
    mine.root = root;
    if (!group_->gather(rank(), mine)) return;
    if (rank() != root) std::memcpy(x, group_->of(root).from, bytes);
    group_->meet(rank());
  }

  void do_barrier(const Stream&) override {
    if (group_->gather(rank(), {})) group_->meet(rank());
  }

  void do_send(const Stream&, const void* x, int64_t bytes, int to) override {
    group_->post(rank(), to, Message(at(x, 0), at(x, bytes)));
  }

  void do_receive(const Stream&, void* x, int64_t bytes, int from) override {
    const std::optional<Message> message = group_->take(from, rank());
    if (!message) return;
    CHECK(static_cast<int64_t>(message->size()) == bytes);
    std::memcpy(x, message->data(), bytes);
  }

 private:
  static Contribution contribution(Operation operation, int64_t bytes, const void* from, void* to) {
    return {operation, ReduceOp::kSum, DType::kInt8, bytes, 0, from, to};
  }

  // This rank's part of so many elements.
  std::pair<int64_t, int64_t> share(int64_t count) const {
    return {count * rank() / size(), count * (rank() + 1) / size()};
  }

  std::vector<const void*> sources_at(int64_t offset) const {
    std::vector<const void*> sources;
    for (int i = 0; i < size(); ++i) sources.push_back(at(group_->of(i).from, offset));
    return sources;
  }

  // Elements [first, last) of all ranks' tensors, for all ranks.
  void reduce(const Stream& stream, ReduceOp op, DType dtype, int64_t first, int64_t last) const {
    stream.pool().parallel_for(last - first, kReduceGrain, [&](int64_t begin, int64_t end) {
      const int64_t from = (first + begin) * dtype_size(dtype);
      std::vector<void*> targets;
      for (int i = 0; i < size(); ++i) targets.push_back(at(group_->of(i).to, from));
      reduce_in_order(op, dtype, sources_at(from), targets, end - begin);
    });
  }

  std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int size,
                                                            std::chrono::milliseconds timeout) {
  CHECK(size >= 1);
  const auto group = std::make_shared<LocalGroup>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<LocalCommunicator>(rank, group));
  }
  return ranks;
}

}  // namespace atom
