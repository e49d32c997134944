// The transport between threads of one process on the CPU: ranks read each other's memory.
//
// Each rank reduces its share of the elements for all, from every rank's tensor and into every
// rank's tensor, between two meetings of all ranks. Messages are copied twice, through a queue.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace atom {

// One communicator for each rank, in order. `timeout` is what an operation waits for the others at
// most. What ranks hand to operations has to live until every rank has returned from its last one,
// also from one that failed.
std::vector<std::unique_ptr<Communicator>> make_local_group(int size,
                                                            std::chrono::milliseconds timeout);

}  // namespace atom
