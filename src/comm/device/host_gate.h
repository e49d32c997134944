// Where the hosts of ranks with a GPU each wait for each other: threads of one process. A kernel
// that waits for other ranks is enqueued when their hosts are about to enqueue theirs. So whatever
// a host asks its card's runtime for, some of which waits until cards are idle (libraries load
// kernels at their first use), no card is kept busy by a rank that has not come.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace atom {

class HostGate {
 public:
  // `timeout`: what a host waits at most. `room`: so much of messages to a rank fits before it
  // receives.
  HostGate(int size, std::chrono::milliseconds timeout, int64_t room);

  // All return at once when the gate is closed; else the rank that did not come in time, if one
  // did not. Each rank's calls are made by one thread at a time.
  using Missing = std::optional<int>;

  // Before an operation of all ranks: when all of them are here.
  Missing meet_all(int rank);
  // Before a message is sent, of which so much fits: when it does, or the receiver is here.
  Missing before_send(int from, int to, int64_t size);
  // When it is enqueued.
  void after_send(int from, int to, int64_t size);
  // Before it is received: when it is enqueued.
  Missing before_receive(int from, int to, int64_t size);
  // Before recorded messages are sent and received again: when the ranks on both sides are here.
  Missing meet_neighbors(int rank);

  // From any thread. For ever.
  void close() { is_closed_.store(true, std::memory_order_release); }

 private:
  // Each written by one thread.
  struct alignas(64) Count {
    std::atomic<int64_t> value{0};
    void add(int64_t more) {
      value.store(value.load(std::memory_order_relaxed) + more, std::memory_order_release);
    }
  };
  struct Pair {
    Count sent;
    Count received;  // or about to be
    Count sends;     // that were recorded
    Count receives;
  };

  Pair& pair(int from, int to) { return pairs_[from * size_ + to]; }
  // Until count >= least.
  bool wait(const Count& count, int64_t least) const;

  const int size_;
  const std::chrono::milliseconds timeout_;
  const int64_t room_;
  const std::unique_ptr<Count[]> comings_;  // [size]
  const std::unique_ptr<Pair[]> pairs_;     // [size, size], by sender and receiver
  std::atomic<bool> is_closed_{false};
};

}  // namespace atom
