#include "config/quant_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/config_reader.h"

namespace atom {
namespace {

// Methods that checkpoints in circulation name; none is computed with yet.
constexpr std::array<std::string_view, 11> kKnownMethods = {"fp8",
                                                            "compressed-tensors",
                                                            "quark",
                                                            "mxfp4",
                                                            "awq",
                                                            "gptq",
                                                            "modelopt",
                                                            "bitsandbytes",
                                                            "fbgemm_fp8",
                                                            "hqq",
                                                            "torchao"};

}  // namespace

const char* quant_type_name(QuantType type) {
  switch (type) {
    case QuantType::kNo:
      return "none";
    case QuantType::kPerTensor:
      return "per_Tensor";
    case QuantType::kPerToken:
      return "per_Token";
    case QuantType::kPer1x128:
      return "per_1x128";
    case QuantType::kPer1x32:
      return "per_1x32";
    case QuantType::kPer128x128:
      return "per_128x128";
  }
  return "?";
}

Result<QuantConfig> parse_quant_config(const Json& json) {
  if (json.is_null()) return QuantConfig();
  if (!json.is_object()) {
    return invalid_argument("config.json: 'quantization_config' is no object");
  }
  const ConfigReader reader(json, "config.json, quantization_config");
  if (!reader.has("quant_method")) {
    return invalid_argument("{}: missing 'quant_method' (a string, the name of the format)",
                            reader.where());
  }
  ASSIGN_OR_RETURN(const std::string method, reader.get_string("quant_method", ""));
  if (std::find(kKnownMethods.begin(), kKnownMethods.end(), method) == kKnownMethods.end()) {
    return reader.wrong("quant_method",
                        *reader.find("quant_method"),
                        fmt::format("one of {}", fmt::join(kKnownMethods, ", ")));
  }
  return unimplemented(
      "config.json: quantization method '{}' is not supported yet; use an unquantized checkpoint "
      "(bfloat16, float16 or float32) of the model",
      method);
}

}  // namespace atom
