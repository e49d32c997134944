// Of builds without a GPU.
#include "comm/device/device_group.h"

namespace atom {

Result<std::vector<std::unique_ptr<Communicator>>> make_device_group(const std::vector<Device>&,
                                                                     std::chrono::milliseconds,
                                                                     const LargeSums&) {
  return unimplemented("this build has no support for GPUs: configure it with -DATOM_CUDA=ON");
}

}  // namespace atom
