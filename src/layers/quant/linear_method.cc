#include "layers/quant/linear_method.h"

#include "layers/quant/quantized_linear.h"
#include "layers/quant/unquantized.h"
#include "ops/silu_and_mul/silu_and_mul.h"

namespace atom {
namespace {

// What the checkpoint calls the parts of the module that is being built.
std::vector<std::string> names_of_parts(const BuildContext& build,
                                        const LinearPartition& partition) {
  std::vector<std::string> names;
  for (const RowSlice& slice : partition.out_slices) {
    names.push_back(source_module(build.packed_modules_mapping, build.module_name, slice.id));
  }
  return names;
}

Result<QuantScheme> choose_scheme(const BuildContext& build, const LinearPartition& partition) {
  const std::vector<std::string> names = names_of_parts(build, partition);
  const QuantConfig& quantization = build.config.quantization;
  const QuantScheme scheme = quantization.scheme_of(names.front());
  for (const std::string& name : names) {
    const QuantScheme other = quantization.scheme_of(name);
    if (other == scheme) continue;
    return unimplemented(
        "config.json: {} ({}) and {} ({}) are quantized differently; they are computed as one "
        "layer and have to agree",
        names.front(),
        scheme.to_string(),
        name,
        other.to_string());
  }
  return scheme;
}

using MakeMethod = std::unique_ptr<LinearMethod>(const BuildContext& build,
                                                 const QuantScheme& scheme,
                                                 const LinearPartition& partition);

std::unique_ptr<LinearMethod> make_unquantized(const BuildContext& build,
                                               const QuantScheme&,
                                               const LinearPartition& partition) {
  return std::make_unique<UnquantizedLinearMethod>(build, partition);
}

std::unique_ptr<LinearMethod> make_quantized(const BuildContext& build,
                                             const QuantScheme& scheme,
                                             const LinearPartition& partition) {
  return std::make_unique<QuantizedLinearMethod>(build, scheme, partition);
}

struct Method {
  bool (*matches)(const QuantScheme& scheme);
  // Why a layer cannot have it.
  Status (*check)(const QuantScheme&, const LinearPartition&, const std::string& name);
  MakeMethod* make;
};

// A quantization is a row, the first that matches. Those that store codes and scales in one of the
// usual ways share a class and differ in the rows of QuantizedWeight's table.
constexpr Method kMethods[] = {
    {[](const QuantScheme& scheme) { return !scheme.is_quantized(); },
     [](const QuantScheme&, const LinearPartition&, const std::string&) { return Status(); },
     make_unquantized},
    {[](const QuantScheme&) { return true; }, check_quantized_weight, make_quantized},
};

}  // namespace

void LinearMethod::apply_silu_and_mul(const Stream& stream,
                                      const Activation& x,
                                      const Tensor& bias,
                                      const Activation& y,
                                      DType dtype,
                                      Workspace& workspace) const {
  const Workspace::Scope scope(workspace);
  const Tensor& out = y.has_codes() ? y.codes.values : y.rows;
  const int64_t size = out.size(1) * (out.dtype() == DType::kUInt8 ? 2 : 1);
  const Tensor product = workspace.tensor({x.num_rows(), 2 * size}, dtype);
  apply(stream, x, bias, product, workspace);
  if (y.has_codes()) {
    ops::silu_and_mul(stream, product, Tensor(), y.codes, workspace);
  } else {
    ops::silu_and_mul(stream, product, y.rows);
  }
}

std::unique_ptr<LinearMethod> make_linear_method(BuildContext& build,
                                                 const LinearPartition& partition) {
  Result<QuantScheme> scheme = choose_scheme(build, partition);
  if (!scheme.ok()) {
    build.fail(scheme.status());
    scheme = QuantScheme();
  }
  for (const Method& method : kMethods) {
    if (!method.matches(*scheme)) continue;
    const Status status = method.check(*scheme, partition, build.module_name);
    if (status.ok()) return method.make(build, *scheme, partition);
    build.fail(status);
    break;
  }
  return make_unquantized(build, {}, partition);
}

}  // namespace atom
