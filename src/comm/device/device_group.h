// The transport between the GPUs of one node, whose ranks are threads of one process with a card
// each: kernels read and write each other's memory.
//
// Operations enqueue on the stream's queue and return. They can be recorded and replayed in graphs,
// as long as every rank replays the same operations in the same order. A rank uses one queue, or
// orders its queues by events. The first operation that waits in vain ends the group: status()
// tells once the queue has come that far. On streams of the CPU the same communicators exchange
// tensors of the host, as comm/local/ does.
//
// A rank that waits keeps its card busy, and some calls of a host wait until its card is idle, or
// all are, while they keep other threads from theirs: so hosts meet before an operation is enqueued
// (host_gate.h), and have to before a graph is launched where any of them may make such calls
// (Communicator::meet_all(), meet_neighbors()).
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/device/sum_format.h"
#include "tensor/device.h"

namespace atom {

// Sums of 16-bit values of at least so many bytes travel in `format`: all_reduce() alone, of
// tensors aligned to 16 bytes, on all ranks alike, with a multiple of 8 values. Each rank's part
// but one is rounded to codes, and so is the sum, which has the same bits on all ranks; a value
// that is no finite number makes its 32 neighbors NaN. Everything else is added as Communicator
// says.
struct LargeSums {
  SumFormat format = SumFormat::kWhole;
  int64_t least_bytes = 16 << 20;
};

// One communicator for each card, in order, of at most 8; rank i computes on devices[i], and its
// thread has that card current. The same card may be there more than once where the kernels of its
// ranks run side by side, as those of small tests do. `timeout` is what an operation waits for the
// others at most. What ranks hand to operations has to live until every rank's queue has passed its
// last one, also one that failed. An error where the build or the machine has no way between the
// cards.
Result<std::vector<std::unique_ptr<Communicator>>> make_device_group(
    const std::vector<Device>& devices,
    std::chrono::milliseconds timeout,
    const LargeSums& large_sums = {});

}  // namespace atom
