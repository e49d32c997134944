#include "layers/activation.h"

#include "ops/quantize/quantize.h"

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
  return ops::quantized_rows(
      {format.codes, format.code_dtype, format.static_scale}, num_rows, size, workspace);
}

}  // namespace atom
