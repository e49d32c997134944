#include "tensor/copy_rows.h"

namespace atom {

void copy_rows(const Stream& stream, const Tensor& from, const Tensor& to) {
  CHECK(from.shape() == to.shape());
  CHECK(from.dtype() == to.dtype());
  if (stream.is_dry_run()) return;
  if (stream.device().is_cpu()) return copy_convert(from, to);
  const int64_t element_size = dtype_size(from.dtype());
  stream.queue().copy_rows(to.raw_data(),
                           to.stride(0) * element_size,
                           from.raw_data(),
                           from.stride(0) * element_size,
                           from.size(1) * element_size,
                           from.size(0));
}

}  // namespace atom
