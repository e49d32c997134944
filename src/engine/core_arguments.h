// The command line of an engine core in a process of its own:
//   EXECUTABLE engine-core --requests=ENDPOINT --responses=ENDPOINT --identity=NAME
//     --heartbeat-ms=INT --num-sampled-ids=INT --lifeline=FD [--FLAG=VALUE of config/flags.def]...
// The front end writes it; `atom engine-core`, and anything else that speaks engine/messages.h in
// its place, reads it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/engine_config.h"
#include "engine/engine_core.h"

namespace atom {

struct CoreArguments {
  EngineCoreEndpoints endpoints;
  int64_t num_sampled_ids = 0;
  int lifeline = -1;  // see base/child_process.h
  EngineConfig config;
};

constexpr const char* kEngineCoreCommand = "engine-core";

// What follows the executable. Flags at their default are left out.
std::vector<std::string> format_core_arguments(const CoreArguments& arguments);

// `arguments`: what follows kEngineCoreCommand.
Result<CoreArguments> parse_core_arguments(std::span<const std::string> arguments);

}  // namespace atom
