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

// A device group of which each operation takes and leaves tensors of the host, at most 4 MB, and
// returns when it is done. There is a card.
std::vector<std::unique_ptr<Communicator>> make_card_group(int size,
                                                           std::chrono::milliseconds timeout);

}  // namespace atom
