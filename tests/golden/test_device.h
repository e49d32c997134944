// Where the golden models compute: ATOM_TEST_DEVICE=cuda is the GPU.
#pragma once

#include <cstdlib>
#include <string_view>

#include "config/engine_config.h"

namespace atom {

inline DeviceChoice golden_device() {
  const char* device = std::getenv("ATOM_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda" ? DeviceChoice::kCuda
                                                                 : DeviceChoice::kCpu;
}

}  // namespace atom
