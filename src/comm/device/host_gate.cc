#include "comm/device/host_gate.h"

#include <thread>

namespace atom {

HostGate::HostGate(int size, std::chrono::milliseconds timeout, int64_t room)
    : size_(size),
      timeout_(timeout),
      room_(room),
      comings_(std::make_unique<Count[]>(size)),
      pairs_(std::make_unique<Pair[]>(size * size)) {}

bool HostGate::wait(const Count& count, int64_t least) const {
  const auto is_there = [&] {
    return count.value.load(std::memory_order_acquire) >= least ||
           is_closed_.load(std::memory_order_acquire);
  };
  // Hosts come about together; one that computes something else meanwhile is not to be disturbed.
  constexpr int kSpins = 4000;
  for (int i = 0; i < kSpins; ++i) {
    if (is_there()) return true;
  }
  const auto begin = std::chrono::steady_clock::now();
  while (!is_there()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > timeout_) return false;
    if (waited < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

HostGate::Missing HostGate::meet_all(int rank) {
  comings_[rank].add(1);
  const int64_t least = comings_[rank].value.load(std::memory_order_relaxed);
  for (int other = 0; other < size_; ++other) {
    if (!wait(comings_[other], least)) return other;
  }
  return std::nullopt;
}

HostGate::Missing HostGate::before_send(int from, int to, int64_t size) {
  Pair& of = pair(from, to);
  const int64_t end = of.sent.value.load(std::memory_order_relaxed) + size;
  // One that does not fit at all waits for its own receiver.
  if (!wait(of.received, size > room_ ? end : end - room_)) return to;
  return std::nullopt;
}

void HostGate::after_send(int from, int to, int64_t size) {
  pair(from, to).sent.add(size);
}

HostGate::Missing HostGate::before_receive(int from, int to, int64_t size) {
  Pair& of = pair(from, to);
  of.received.add(size);
  if (!wait(of.sent, of.received.value.load(std::memory_order_relaxed))) return from;
  return std::nullopt;
}

HostGate::Missing HostGate::meet_neighbors(int rank) {
  const bool has_next = rank + 1 < size_, has_previous = rank > 0;
  if (has_next) pair(rank, rank + 1).sends.add(1);
  if (has_previous) pair(rank - 1, rank).receives.add(1);
  const auto own = [](const Count& count) { return count.value.load(std::memory_order_relaxed); };
  if (has_next) {
    const Pair& to = pair(rank, rank + 1);
    if (!wait(to.receives, own(to.sends))) return rank + 1;
  }
  if (has_previous) {
    const Pair& from = pair(rank - 1, rank);
    if (!wait(from.sends, own(from.receives))) return rank - 1;
  }
  return std::nullopt;
}

}  // namespace atom
