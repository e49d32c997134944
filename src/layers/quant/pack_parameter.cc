#include "layers/quant/pack_parameter.h"

#include <algorithm>

namespace atom {
namespace {

constexpr int64_t kPieceSize = int64_t{32} << 20;  // bytes
constexpr int64_t kRowMultiple = 64;               // whole panels of every packed layout

}  // namespace

ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight) {
  const Tensor rows = weight->data();
  if (!stream.device().is_cpu()) {
    // Row-major is what its kernels read.
    weight->release();
    return {rows, rows.size(0), rows.size(1), ops::WeightLayout::kRowMajor};
  }
  const int64_t num_rows = rows.size(0);
  const int64_t row_size = rows.size(1) * dtype_size(rows.dtype());
  const int64_t piece = std::max(kRowMultiple, kPieceSize / row_size / kRowMultiple * kRowMultiple);
  ops::LinearWeight packed = ops::make_linear_weight(num_rows, rows.size(1), rows.dtype());
  for (int64_t first = 0; first < num_rows; first += piece) {
    const Tensor part = rows.narrow(0, first, std::min(piece, num_rows - first));
    ops::pack_rows(stream, part, first, packed);
    discard_content(part);
  }
  weight->release();
  return packed;
}

}  // namespace atom
