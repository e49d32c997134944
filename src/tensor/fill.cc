#include "tensor/fill.h"

#include <cstring>

namespace atom {

void fill_zero(const Stream& stream, const Tensor& tensor) {
  CHECK(tensor.is_contiguous());
  if (stream.is_dry_run()) return;
  if (!stream.device().is_cpu()) {
    stream.queue().fill_zero(tensor.raw_data(), tensor.num_bytes());
    return;
  }
  std::memset(tensor.raw_data(), 0, tensor.num_bytes());
}

}  // namespace atom
