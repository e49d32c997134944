// The architectures that atom runs: one row each, the key being architectures[0] of config.json.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "config/model_config.h"
#include "models/causal_lm.h"

namespace atom {

struct Architecture {
  const char* name;
  ModelConfigDefaults defaults;
  // An error when the configuration asks for something the architecture's code does not do.
  Result<std::unique_ptr<CausalLM>> (*create)(BuildContext& build);
};

std::span<const Architecture> architectures();

// An unknown name is an error that lists the known ones.
Result<const Architecture*> find_architecture(std::string_view name);

// config.json and generation_config.json of a checkpoint folder, read with the defaults of its
// architecture.
Result<ModelConfig> load_model_config(const std::string& folder);

}  // namespace atom
