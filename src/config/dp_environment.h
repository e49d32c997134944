// The variables by which the original system is told of its data-parallel ranks. Where they are set
// they count more than flags, and than what a program asks for.
#pragma once

#include "base/env.h"
#include "base/status.h"
#include "config/engine_config.h"

namespace atom {

// ATOM_DP_SIZE becomes the number of copies. One process starts all of them: it is rank 0, and what
// makes it another, or has it meet others elsewhere, is refused by name. Once for an EngineConfig,
// before resolve().
Status apply_dp_environment(const Env& variables, EngineConfig* config);

}  // namespace atom
