// What the commands that run a model do on a node that is not the head (--node-rank 1 and above).
#pragma once

#include "config/engine_config.h"

namespace atom::cli {

// Computes for the head until it ends, or until SIGINT or SIGTERM, the second of which is obeyed at
// once. Returns the exit code. A model
// of the hub is downloaded first.
int follow_head(EngineConfig config);

}  // namespace atom::cli
