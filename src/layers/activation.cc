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
  const Tensor values = workspace.tensor({num_rows, size}, format.code_dtype);
  const bool is_static = format.static_scale.defined();
  const Tensor scales =
      is_static ? format.static_scale : workspace.tensor({num_rows}, DType::kFloat32);
  return {values, scales, format.codes, is_static};
}

}  // namespace atom
