// Inside config: the "quantization_config" that AMD's Quark writes.
#pragma once

#include "config/config_reader.h"
#include "config/quant_config.h"

namespace atom {

// Fills groups (those of layers before the one of all), ignored and fp8_kv_cache. What the tool can
// express and atom cannot compute is kUnimplemented, with the reason.
Status parse_quark(const ConfigReader& reader, QuantConfig* config);

}  // namespace atom
