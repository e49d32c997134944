// Checks that models share: configurations that their code does not implement are refused by name.
#pragma once

#include "base/status.h"
#include "config/model_config.h"

namespace atom {

Status require_silu(const ModelConfig& config);
Status require_no_query_scaling(const ModelConfig& config);

}  // namespace atom
