// A thread and a queue for each rank of a group on cards, for benchmarks of what ranks do together.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <vector>

#include "comm/device/device_group.h"
#include "tensor/device_runtime.h"

namespace atom::bench {

struct RankSeat {
  int rank = 0;
  DeviceRuntime* card = nullptr;
  Communicator* ranks = nullptr;
  std::unique_ptr<DeviceQueue> queue;
  std::shared_ptr<void> x, y;  // memory of the card, as much as was asked for
  double microseconds = 0;     // of what was measured last
};

class RankSeats {
 public:
  // A rank on each of the first cards, with two times `memory` bytes.
  RankSeats(int num_ranks, int64_t memory);

  // Prints why not.
  bool open(const LargeSums& large_sums = {});

  int size() const { return static_cast<int>(seats_.size()); }
  int64_t memory() const { return memory_; }
  const RankSeat& operator[](int rank) const { return seats_[rank]; }

  using Body = std::function<void(RankSeat&, const Stream&)>;
  // On a thread of each rank.
  void on_all(const Body& body);
  // Microseconds of one of `count` in a graph, which is launched `launches` times a round: of
  // the slowest rank, the least of several rounds.
  double time(int count, int launches, const Body& once);

 private:
  int64_t memory_;
  std::barrier<> meeting_;
  std::vector<RankSeat> seats_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

// A benchmark's main: `run` with the ranks that the first argument asks for, as many as there are
// cards without one. `arguments` is the usage. Returns run's exit code, else 1 or 2 with the reason
// printed. Kernels are loaded at once, before a card waits for another one.
int run_with_ranks(int argc,
                   char** argv,
                   const char* arguments,
                   const std::function<int(int ranks)>& run);

}  // namespace atom::bench
