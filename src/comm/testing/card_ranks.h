// Ranks on GPUs for tests that know tensors of the host alone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "tensor/device_runtime.h"
#include "tensor/workspace.h"

namespace atom {

// 0 where the build or the machine has none.
int num_cards();

// One for each rank: with as many cards as there are, in turns.
std::vector<Device> cards_of(int num_ranks);

// A rank's side of a test.
struct CardSeat {
  Communicator& rank;
  Device device;
  DeviceQueue& queue;
  const Stream& stream;
  std::shared_ptr<void> memory;
  Workspace& scratch;

  Tensor tensor(const Shape& shape, DType dtype, int64_t offset = 0) const {
    return Tensor(static_cast<uint8_t*>(memory.get()) + offset, dtype, shape, memory, device);
  }
};
// Each rank of a device group of cards_of() on a thread of its own, with so many bytes of memory
// and of scratch, which are there before any rank begins: the runtime may want a card to be idle
// for them.
void on_cards(const std::vector<std::unique_ptr<Communicator>>& ranks,
              int64_t memory,
              const std::function<void(const CardSeat&)>& body,
              int64_t scratch = 0);

// A device group of which each operation takes and leaves tensors of the host, at most 4 MB, and
// returns when it is done. There is a card.
std::vector<std::unique_ptr<Communicator>> make_card_group(int size,
                                                           std::chrono::milliseconds timeout);

// The same of ranks that come to each other by way of the host (comm/staged/), over sockets; on
// fake cards where there is none.
std::vector<std::unique_ptr<Communicator>> make_staged_group(int size,
                                                             std::chrono::milliseconds timeout);

}  // namespace atom
