#include "layers/quant/pack_parameter.h"

#include "ops/quantize/quantize.h"

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

ops::LinearWeight quantize_consumed_rows(const Stream& host,
                                         const Tensor& rows,
                                         const ops::QuantFormat& format,
                                         ops::WeightLayout layout) {
  const int64_t in_features = rows.size(1);
  const ops::LinearWeight packed =
      ops::make_quantized_weight(rows.size(0), in_features, format, layout);
  const int64_t width = in_features / (packed.dtype() == DType::kUInt8 ? 2 : 1);
  consume_in_pieces(rows, [&](const Tensor& piece, int64_t first) {
    const int64_t count = piece.size(0);
    const Tensor values = Tensor::empty({count, width}, packed.dtype());
    const Shape scale_shape =
        packed.has_groups() ? Shape{count, in_features / packed.group_size} : Shape{count};
    const Tensor scales = Tensor::empty(scale_shape, packed.scales.dtype());
    ops::quantize(host, piece, {values, scales, format.granularity}, E8M0Rounding::kEven);
    ops::pack_rows(host, values, first, packed);
    ops::pack_scales(scales, first, packed);
  });
  return packed;
}

ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight) {
  const ops::LinearWeight packed = pack_consumed_rows(stream, weight->data());
  weight->release();
  return packed;
}

}  // namespace atom
