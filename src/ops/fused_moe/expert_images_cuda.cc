// Experts' codes from rows to images where they are: the checked call.
#include "base/check.h"
#include "ops/fused_moe/expert_images.h"
#include "ops/fused_moe/expert_images_gpu.h"

namespace atom::ops {

void turn_into_images(const Stream& stream, const Tensor& codes, int64_t num_columns) {
  CHECK(codes.dtype() == DType::kUInt8);
  CHECK(codes.device() == stream.device());
  CHECK(num_columns % kImageColumns == 0);
  CHECK(num_columns <= kMostImageColumns);
  const int64_t tile_size = kImageRows * num_columns / 2;
  CHECK(codes.num_bytes() % tile_size == 0);
  turn_tiles_into_images(codes.raw_data(),
                         codes.num_bytes() / tile_size,
                         static_cast<int>(num_columns),
                         stream.queue().handle());
}

}  // namespace atom::ops
