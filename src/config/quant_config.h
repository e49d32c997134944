// How a checkpoint says its weights are quantized.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/module_pattern.h"
#include "tensor/quant_type.h"

namespace atom {

// How one linear layer is quantized: the granularity of scales and the type of values.
struct QuantScheme {
  QuantType weights = QuantType::kNo;
  QuantType activations = QuantType::kNo;  // kNo: they stay as they are
  // The scales of activations come from the checkpoint, else from the activations themselves.
  bool static_activations = false;
  // The checkpoint's weight is not quantized; loading does it.
  bool online = false;
  QuantDType weight_dtype = QuantDType::kFloat8E4M3;
  QuantDType activation_dtype = QuantDType::kFloat8E4M3;

  bool is_quantized() const { return weights != QuantType::kNo; }
  bool operator==(const QuantScheme&) const = default;
  // "fp8 weights per_Token, activations per_Token (dynamic)", or "none"
  std::string to_string() const;
};

struct QuantConfig {
  // Linear layers that are quantized alike.
  struct Group {
    std::vector<ModulePattern> targets;
    QuantScheme scheme;
  };

  std::string method;         // "quant_method" of the file; empty when not quantized
  std::vector<Group> groups;  // a layer belongs to the first that one of its targets matches
  std::vector<ModulePattern> ignored;
  bool fp8_kv_cache = false;        // the checkpoint was made for an FP8 cache
  std::shared_ptr<const Json> raw;  // the "quantization_config" object; null when not quantized

  bool is_quantized() const { return !method.empty(); }
  // The scheme of a layer by its name in the checkpoint, "model.layers.0.self_attn.q_proj".
  QuantScheme scheme_of(std::string_view module) const;
  // The scheme of the first group, for reports; of layers that are not ignored.
  std::string to_string() const;
};

// From a "quantization_config" object, or none when it is null. A method that atom cannot compute
// with is kUnimplemented and named; one that nobody knows is kInvalidArgument.
Result<QuantConfig> parse_quant_config(const Json& json);

}  // namespace atom
