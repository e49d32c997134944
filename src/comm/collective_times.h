// What a group's collectives take, over sizes: for `atom doctor`, and to state a link's figures to
// `atom plan --simulate`.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace atom {

enum class Collective { kAllReduce, kAllGather, kAllToAll };

inline constexpr Collective kCollectives[] = {
    Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll};

const char* collective_name(Collective collective);

struct CollectiveTime {
  Collective collective = Collective::kAllReduce;
  // Of the whole tensor on a rank: what is reduced, what is gathered, what is exchanged.
  int64_t bytes = 0;
  double seconds = 0;  // of one, on the slowest rank

  // Bytes per second that a rank has to send and to receive at least, whatever the algorithm.
  double bus_bandwidth(int num_ranks) const;
};

// Each rank of the group calls this at the same time, with the same sizes, each a multiple of 4
// bytes for each rank; `budget` is what each measurement takes, about. Every rank gets the same. Of
// cards it is many operations in a row, each launched by the host.
Result<std::vector<CollectiveTime>> measure_collectives(Communicator& rank,
                                                        const Stream& stream,
                                                        std::span<const int64_t> sizes,
                                                        std::chrono::milliseconds budget);

}  // namespace atom
