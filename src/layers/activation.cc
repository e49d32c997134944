#include "layers/activation.h"

#include "base/check.h"

namespace atom {

bool ActivationFormat::takes(const ops::QuantizedRows& quantized) const {
  if (!has_codes() || !quantized.defined()) return false;
  if (quantized.values.dtype() != code_dtype || quantized.granularity != codes) return false;
  if (quantized.is_static != static_scale.defined()) return false;
  return !quantized.is_static || quantized.scales.raw_data() == static_scale.raw_data();
}

ActivationFormat unite(const ActivationFormat& first, const ActivationFormat& second) {
  ActivationFormat both = first.has_codes() ? first : second;
  const bool is_dynamic = !first.static_scale.defined() && !second.static_scale.defined();
  const bool agree =
      first.codes == second.codes && first.code_dtype == second.code_dtype && is_dynamic;
  both.rows = first.rows || second.rows || !agree;
  return both;
}

ops::QuantizedRows make_codes(const ActivationFormat& format,
                              int64_t num_rows,
                              int64_t size,
                              Workspace& workspace) {
  CHECK(format.has_codes());
  const bool has_four_bits = format.code_dtype == DType::kUInt8;
  const Tensor values =
      workspace.tensor({num_rows, has_four_bits ? size / 2 : size}, format.code_dtype);
  if (format.static_scale.defined()) return {values, format.static_scale, format.codes, true};
  Shape shape = {num_rows};
  if (format.codes == QuantType::kPer1x128) shape = {num_rows, (size + 127) / 128};
  if (format.codes == QuantType::kPer1x32) shape = {num_rows, size / 32};
  const DType dtype = has_four_bits ? DType::kUInt8 : DType::kFloat32;
  return {values, workspace.tensor(shape, dtype), format.codes, false};
}

}  // namespace atom
