#include "layers/quant/linear_method.h"

#include "layers/quant/fp8.h"
#include "layers/quant/unquantized.h"
#include "ops/silu_and_mul/silu_and_mul.h"

namespace atom {
namespace {

// What the checkpoint calls the parts of the module that is being built: those of a merged layer
// are its siblings, "q_proj" for the slice "q".
std::vector<std::string> names_of_parts(const std::string& module,
                                        const LinearPartition& partition) {
  if (!partition.is_packed()) return {module};
  const size_t dot = module.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : module.substr(0, dot + 1);
  std::vector<std::string> names;
  for (const RowSlice& slice : partition.out_slices) {
    names.push_back(slice.id.empty() ? module : parent + slice.id + "_proj");
  }
  return names;
}

Result<QuantScheme> choose_scheme(const BuildContext& build, const LinearPartition& partition) {
  const std::vector<std::string> names = names_of_parts(build.module_name, partition);
  const QuantConfig& quantization = build.config.quantization;
  const QuantScheme scheme = quantization.scheme_of(names.front());
  for (const std::string& name : names) {
    const QuantScheme other = quantization.scheme_of(name);
    if (other == scheme) continue;
    return unimplemented(
        "config.json: {} ({}) and {} ({}) are quantised differently; they are computed as one "
        "layer and have to agree",
        names.front(),
        scheme.to_string(),
        name,
        other.to_string());
  }
  return scheme;
}

}  // namespace

void LinearMethod::apply_silu_and_mul(const Stream& stream,
                                      const Activation& x,
                                      const Tensor& bias,
                                      const Activation& y,
                                      DType dtype,
                                      Workspace& workspace) const {
  const Workspace::Scope scope(workspace);
  const int64_t size = (y.has_codes() ? y.codes.values : y.rows).size(1);
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
  const Result<QuantScheme> scheme = choose_scheme(build, partition);
  if (!scheme.ok()) build.fail(scheme.status());
  if (scheme.ok() && scheme->is_quantized()) {
    return std::make_unique<Fp8LinearMethod>(build, *scheme, partition);
  }
  return std::make_unique<UnquantizedLinearMethod>(build, partition);
}

}  // namespace atom
