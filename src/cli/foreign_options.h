// Options of vLLM and of other servers that have nothing to choose here: taken with a line in the
// log that says why nothing comes of them, or refused with the reason. Those that mean something
// are flags like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/option.h"
#include "config/engine_config.h"

namespace atom::cli {

// Those of `command`, one of kCommand...
std::vector<Option> foreign_options(uint32_t command);

// Options whose values become those of flags: --enforce-eager, --level, --cudagraph-mode,
// --load-format and --torch-profiler-dir. They set `config`, which outlives them.
std::vector<Option> translated_options(uint32_t command, EngineConfig* config);

}  // namespace atom::cli
