#include "tensor/device_capability.h"

namespace atom {
namespace {

// The oldest that the generic kernels are compiled for (cmake/cuda.cmake).
constexpr int kLeastMajor = 8, kLeastMinor = 0;

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

}  // namespace atom
