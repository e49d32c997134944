// Where the golden models compute: ATOM_TEST_DEVICE=cuda is the GPU.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "config/engine_config.h"
#include "tensor/device_runtime.h"

namespace atom {

inline DeviceChoice golden_device() {
  const char* device = std::getenv("ATOM_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda" ? DeviceChoice::kCuda
                                                                 : DeviceChoice::kCpu;
}

// Why so many ranks cannot be tried where the golden models compute; empty where they can.
inline std::string missing_cards(int num_ranks) {
  if (golden_device() == DeviceChoice::kCpu) return {};
  const auto cards = device_facts(DeviceType::kCuda);
  const auto count = cards.ok() ? std::ssize(*cards) : 0;
  if (count >= num_ranks) return {};
  return fmt::format("{} ranks need as many GPUs, and there are {}", num_ranks, count);
}

// On GPUs those ways for which there are cards enough, and that are not for the CPU alone.
inline bool can_try(const ParallelConfig& parallel) {
  if (golden_device() == DeviceChoice::kCpu) return true;
  const int num_ranks = parallel.ranks_of_copy() * parallel.data_parallel_size;
  return missing_cards(num_ranks).empty() && parallel.prefill_context_parallel_size == 1;
}

}  // namespace atom
