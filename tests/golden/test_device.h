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

}  // namespace atom
