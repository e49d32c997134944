// Made-up weights for --load-dummy: speed and memory of a model without its tensors.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/engine_config.h"
#include "nn/module.h"
#include "tensor/stream.h"

namespace atom {

// Allocates and fills every parameter, then calls the model's finish_load. kRandom: uniform with
// standard deviation 0.02, norm weights around 1; an element depends on the seed, the parameter's
// name and its index only, not on the device. `kind` is not kNone.
Status load_dummy(Module* model, DummyWeights kind, uint64_t seed, const Stream& stream);

}  // namespace atom
