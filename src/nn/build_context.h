// What a model's constructor needs to build its layers. New concerns of construction (quantisation,
// parallel groups) become fields here, so that the signatures of layers and models stay.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "nn/kv_cache.h"
#include "nn/parallel_context.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace atom {

struct BuildContext {
  const ModelConfig& config;
  DType dtype = DType::kBFloat16;  // of weights, activations and KV cache
  int64_t max_model_len = 0;       // positions that rope tables must cover
  Device device = {};              // where the model will run
  ParallelContext parallel = {};

  // Written by attention layers as they are built: the cache that each needs, in their order.
  std::vector<KVCacheSpec> kv_cache_specs = {};
};

}  // namespace atom
