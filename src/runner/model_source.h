// From a resolved configuration to a model in memory.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "config/resolve.h"
#include "models/causal_lm.h"
#include "models/draft_model.h"
#include "tensor/stream.h"

namespace atom {

// Told the bytes of weights in place and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

struct BuiltModel {
  Device device;
  ParallelContext parallel;         // the rank that it is built for
  std::unique_ptr<CausalLM> model;  // its parameters have shapes, no memory
  // What drafts for it, likewise; null where nothing does that has weights.
  std::unique_ptr<DraftModel> draft;
  StorageSpec storage;  // what its layers keep between steps
  // Whose input a draft model reads, of whichever stage it and they are.
  int64_t num_aux_layers = 0;
  std::vector<FusedMoE*> moving_experts;  // BuildContext's
};

// The part of the model that a rank has; without one the whole. `config` outlives the model.
Result<BuiltModel> build_model(const ResolvedConfig& config,
                               Device device = {},
                               const ParallelContext& parallel = {});

// Allocates the parameters of a model and of its draft model, which may be null, and fills them
// from the checkpoint, or with dummy weights.
Status load_weights(const ResolvedConfig& config,
                    const Stream& stream,
                    CausalLM& model,
                    DraftModel* draft,
                    const LoadProgress& progress);

}  // namespace atom
