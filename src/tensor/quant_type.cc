#include "tensor/quant_type.h"

namespace atom {

const char* quant_dtype_name(QuantDType dtype) {
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return "fp8";
    case QuantDType::kInt8:
      return "int8";
    case QuantDType::kFloat4E2M1:
      return "fp4";
    case QuantDType::kInt4:
      return "int4";
  }
  return "?";
}

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

}  // namespace atom
