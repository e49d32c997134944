// Inside config: the "config_groups" of compressed-tensors.
#pragma once

#include "config/config_reader.h"
#include "config/quant_config.h"

namespace atom {

// Fills groups, ignored and fp8_kv_cache.
Status parse_compressed_tensors(const ConfigReader& reader, QuantConfig* config);

// A list of module patterns under `key`; empty when missing.
Result<std::vector<ModulePattern>> read_module_patterns(const ConfigReader& reader,
                                                        std::string_view key);

}  // namespace atom
