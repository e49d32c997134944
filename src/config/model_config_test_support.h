// Test support: a small config.json, and what is read of it.
#pragma once

#include <string>

#include "base/json.h"
#include "config/model_config.h"

namespace atom {

Json llama_json();
// llama_json() with one key replaced.
Json llama_with(const char* key, Json value);

// A refusal fails the test.
ModelConfig parsed_config(const Json& json, const ModelConfigDefaults& defaults = {});
// "no error" where there is none.
std::string config_error(const Json& json, const ModelConfigDefaults& defaults = {});

}  // namespace atom
