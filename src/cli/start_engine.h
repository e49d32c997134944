// What the commands that run a model do first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/llm_engine.h"

namespace atom::cli {

// Takes the checkpoint folder off the front of `arguments` unless --model gave it. An error is one
// of usage.
Status take_checkpoint(std::vector<std::string>* arguments, EngineConfig* config);

// An error of usage when there are arguments left.
Status refuse_arguments(const std::vector<std::string>& arguments);

// --log-level, else ATOM_LOG_LEVEL, else warnings.
Status apply_log_level(const EngineConfig& config);

// With a progress bar on a terminal.
Result<std::unique_ptr<LLMEngine>> start_engine(const EngineConfig& config);

}  // namespace atom::cli
