#include "layers/quant/pack_parameter.h"

namespace atom {

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

ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight) {
  const ops::LinearWeight packed = pack_consumed_rows(stream, weight->data());
  weight->release();
  return packed;
}

}  // namespace atom
