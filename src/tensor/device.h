// Where memory lives and work runs.
#pragma once

#include <string>

namespace atom {

enum class DeviceType { kCpu };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  std::string to_string() const { return "cpu"; }
};

}  // namespace atom
