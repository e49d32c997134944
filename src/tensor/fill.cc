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

void fill_bytes(const Stream& stream, const Tensor& rows, uint8_t value) {
  CHECK(rows.rank() == 2);
  if (stream.is_dry_run()) return;
  const int64_t element_size = dtype_size(rows.dtype());
  const int64_t stride = rows.stride(0) * element_size, row_size = rows.size(1) * element_size;
  if (!stream.device().is_cpu()) {
    stream.queue().fill_rows(rows.raw_data(), stride, value, row_size, rows.size(0));
    return;
  }
  for (int64_t row = 0; row < rows.size(0); ++row) {
    std::memset(static_cast<char*>(rows.raw_data()) + row * stride, value, row_size);
  }
}

}  // namespace atom
