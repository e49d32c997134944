#include "layers/moe/shared_experts.h"

#include "ops/add/add.h"

namespace atom {
namespace {

// The scheme of slice `slice` of a stack, by its module in the checkpoint.
QuantScheme scheme_of_slice(const BuildContext& build,
                            const std::string& stack,
                            const std::string& slice) {
  const std::string module = build.module_name + "." + stack;
  return build.config.quantization.scheme_of(
      source_module(build.packed_modules_mapping, module, slice));
}

bool is_part_alike(const BuildContext& build, const std::string& stack, const std::string& part) {
  return scheme_of_slice(build, stack, "0." + part) ==
         scheme_of_slice(build, stack, "shared." + part);
}

}  // namespace

bool are_shared_experts_alike(const BuildContext& build) {
  return is_part_alike(build, "gate_up_proj", "gate") &&
         is_part_alike(build, "gate_up_proj", "up") && is_part_alike(build, "down_proj", "down");
}

void add_shared_experts(const Tensor& shared, const Tensor& out, const ForwardContext& context) {
  ops::add(context.stream, shared, out);
}

}  // namespace atom
