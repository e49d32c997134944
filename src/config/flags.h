// The flags of flags.def as a table, from which command lines, --help and documentation are made.
// Built once, const afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/engine_config.h"

namespace atom {

// Subcommands, as a mask.
constexpr uint32_t kCommandServe = 1u << 0;
constexpr uint32_t kCommandChat = 1u << 1;
constexpr uint32_t kCommandGenerate = 1u << 2;
constexpr uint32_t kCommandBench = 1u << 3;
constexpr uint32_t kCommandPlan = 1u << 4;
constexpr uint32_t kCommandInspect = 1u << 5;
constexpr uint32_t kCommandPull = 1u << 6;
constexpr uint32_t kCommandEngines =
    kCommandServe | kCommandChat | kCommandGenerate | kCommandBench;
// That compute with ranks on several machines.
constexpr uint32_t kCommandOfNodes = kCommandServe | kCommandGenerate | kCommandBench;
// That take a checkpoint.
constexpr uint32_t kCommandAll = kCommandEngines | kCommandPlan | kCommandInspect;

struct FlagSpec {
  std::string name;                  // "max-model-len": --max-model-len
  std::vector<std::string> aliases;  // with their dashes: "-tp", "--kv-cache-memory-bytes"
  std::string group;                 // heading in --help
  uint32_t commands = 0;             // mask of kCommand...
  bool is_bool = false;              // takes no value; --no-<name> sets it false
  std::string implicit_value;        // of the flag without a value; empty: it needs one
  std::string value_name;            // "INT", "auto|bfloat16|...", ...
  std::string range;                 // "[1, 1024]", or empty
  std::string default_value;
  std::string help;

  // Parses, checks the range and stores. An error names the flag, the value and what is expected.
  std::function<Status(EngineConfig*, std::string_view)> set;
  std::function<std::string(const EngineConfig&)> get;
};

// Every flag, in the order of flags.def.
std::span<const FlagSpec> flag_specs();

// Finds a name or alias, leading dashes or not, underscores taken as dashes; null when unknown.
const FlagSpec* find_flag(std::string_view spelling);

}  // namespace atom
