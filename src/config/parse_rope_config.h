// Reading the rope keys of config.json; a step of parse_model_config.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/config_reader.h"
#include "config/model_config.h"

namespace atom {

Result<RopeConfig> parse_rope_config(const ConfigReader& config,
                                     const ModelConfigDefaults& defaults,
                                     int32_t head_dim,
                                     int32_t max_position_embeddings);

}  // namespace atom
