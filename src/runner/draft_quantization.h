// Layers for multi-token prediction in quantized checkpoints. Some, of FP4 weights above all, store
// these layers as they were trained, and do not always say so in their configuration.
#pragma once

#include "config/model_config.h"
#include "loader/checkpoint.h"

namespace atom {

// `config`, in which those layers are not quantized if the checkpoint has no scale for any weight
// of theirs.
ModelConfig with_draft_layers_as_stored(const ModelConfig& config, const Checkpoint& checkpoint);

}  // namespace atom
