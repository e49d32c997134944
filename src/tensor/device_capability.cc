#include "tensor/device_capability.h"

namespace atom {
namespace {

// The oldest that the generic kernels are compiled for (cmake/cuda.cmake).
constexpr int kLeastMajor = 8, kLeastMinor = 0;
constexpr int kHopper = 9;

}  // namespace

Status check_capability(const DeviceFacts& card) {
  if (card.capability_major > kLeastMajor ||
      (card.capability_major == kLeastMajor && card.capability_minor >= kLeastMinor)) {
    return {};
  }
  return unavailable("{} has compute capability {}.{}; atom needs {}.{} or newer",
                     card.name,
                     card.capability_major,
                     card.capability_minor,
                     kLeastMajor,
                     kLeastMinor);
}

bool is_hopper(Device device) {
  if (device.is_cpu()) return false;
  const auto cards = device_facts(device.type);
  return cards.ok() && device.index < static_cast<int>(cards->size()) &&
         (*cards)[device.index].capability_major == kHopper;
}

}  // namespace atom
