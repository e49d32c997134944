// The flags of config/flags.def as options of a command.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/option.h"
#include "config/engine_config.h"

namespace atom::cli {

// Those that `command` (one of kCommand...) takes. They set `config`, which outlives them.
std::vector<Option> engine_flags(uint32_t command, EngineConfig* config);

}  // namespace atom::cli
