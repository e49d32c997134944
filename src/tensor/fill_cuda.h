// Inside tensor: the device's side of DeviceQueue::fill_random.
#pragma once

#include <stdint.h>

#include "tensor/gpu_api.h"

namespace atom {

enum class FillKind { kFloat32, kFloat16, kBFloat16, kBytes };

void fill_random_cuda(void* data,
                      FillKind kind,
                      int64_t count,
                      uint64_t key,
                      float center,
                      float half_width,
                      uint8_t byte_mask,
                      gpuStream_t stream);

}  // namespace atom
