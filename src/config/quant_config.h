// How a checkpoint says its weights are quantised.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// Granularity of the scales of a quantised weight.
enum class QuantType {
  kNo,
  kPerTensor,
  kPerToken,  // one scale per output channel (weights) or token (activations)
  kPer1x128,
  kPer1x32,
  kPer128x128,
};

const char* quant_type_name(QuantType type);

struct QuantConfig {
  QuantType type = QuantType::kNo;
  std::string method;               // "quant_method" of the file; empty when not quantised
  std::shared_ptr<const Json> raw;  // the "quantization_config" object; null when not quantised

  bool is_quantized() const { return !method.empty(); }
};

// From a "quantization_config" object, or none when it is null. A method that atom cannot compute
// with is kUnimplemented and named; one that nobody knows is kInvalidArgument.
Result<QuantConfig> parse_quant_config(const Json& json);

}  // namespace atom
