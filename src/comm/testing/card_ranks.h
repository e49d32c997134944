// Ranks on GPUs for tests that know tensors of the host alone.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "tensor/device_runtime.h"

namespace atom {

// 0 where the build or the machine has none.
int num_cards();

// One for each rank: with as many cards as there are, in turns.
std::vector<Device> cards_of(int num_ranks);

// A queue on the card, which the calling thread has current from then on.
std::unique_ptr<DeviceQueue> make_card_queue(Device device);

// Memory of the card; null where the build has no support for GPUs.
std::shared_ptr<void> make_card_memory(Device device, int64_t bytes);

// A device group of which each operation takes and leaves tensors of the host, at most 4 MB, and
// returns when it is done. There is a card.
std::vector<std::unique_ptr<Communicator>> make_card_group(int size,
                                                           std::chrono::milliseconds timeout);

}  // namespace atom
