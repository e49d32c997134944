// What the commands that run a model do first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/llm_engine.h"

namespace atom::cli {

// Takes the checkpoint, a folder or a model of the hub, off the front of `arguments` unless --model
// gave it. An error is one of usage.
Status take_checkpoint(std::vector<std::string>* arguments, EngineConfig* config);

// An error of usage when there are arguments left.
Status refuse_arguments(const std::vector<std::string>& arguments);

// --log-level, else ATOM_LOG_LEVEL, else warnings; --log-format, else ATOM_LOG_FORMAT, else text.
Status apply_log_flags(const EngineConfig& config);

// A model of the hub is downloaded first, and `check` told of the folder before anything is loaded
// from it. With progress bars on a terminal.
Result<std::unique_ptr<LLMEngine>> start_engine(
    const EngineConfig& config,
    CoreLaunch launch = {},
    const std::function<Status(const ModelSourceConfig&)>& check = nullptr);

}  // namespace atom::cli
