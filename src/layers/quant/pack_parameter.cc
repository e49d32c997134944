#include "layers/quant/pack_parameter.h"

#include <algorithm>

#include "ops/quantize/quantize.h"

namespace atom {
namespace {

constexpr int64_t kPieceSize = int64_t{32} << 20;  // bytes

// Calls visit(part, first row) for pieces of `rows` that are whole panels of every packed layout,
// and gives each back.
template <typename Visit>
void consume_in_pieces(const Tensor& rows, const Visit& visit) {
  const int64_t num_rows = rows.size(0);
  const int64_t row_size = rows.size(1) * dtype_size(rows.dtype());
  const int64_t piece =
      std::max(kPackedRowMultiple, kPieceSize / row_size / kPackedRowMultiple * kPackedRowMultiple);
  for (int64_t first = 0; first < num_rows; first += piece) {
    const Tensor part = rows.narrow(0, first, std::min(piece, num_rows - first));
    visit(part, first);
    discard_content(part);
  }
}

}  // namespace

ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight) {
  const ops::LinearWeight packed = pack_consumed_rows(stream, weight->data());
  weight->release();
  return packed;
}

ops::LinearWeight pack_consumed_rows(const Stream& stream, const Tensor& rows) {
  if (!stream.device().is_cpu()) {
    // Row-major is what its kernels read.
    return {rows, rows.size(0), rows.size(1), ops::WeightLayout::kRowMajor, {}};
  }
  ops::LinearWeight packed = ops::make_linear_weight(rows.size(0), rows.size(1), rows.dtype());
  consume_in_pieces(rows, [&](const Tensor& part, int64_t first) {
    ops::pack_rows(stream, part, first, packed);
  });
  return packed;
}

ops::LinearWeight quantise_rows(const Stream& stream, const Tensor& rows) {
  ops::LinearWeight packed =
      ops::make_linear_weight(rows.size(0), rows.size(1), DType::kFloat8E4M3);
  packed.scales = Tensor::empty({rows.size(0)}, DType::kFloat32);
  consume_in_pieces(rows, [&](const Tensor& part, int64_t first) {
    const Tensor values = Tensor::empty(part.shape(), DType::kFloat8E4M3);
    ops::quantize(stream, part, {values, packed.scales.narrow(0, first, part.size(0))});
    ops::pack_rows(stream, values, first, packed);
  });
  return packed;
}

}  // namespace atom
