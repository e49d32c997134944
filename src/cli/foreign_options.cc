#include "cli/foreign_options.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "base/log.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kForeignGroup = "Other servers' options";

enum class Effect { kNoEffect, kRefused };

struct ForeignSpec {
  uint32_t commands;
  const char* names;
  const char* value;
  Effect effect;
  const char* reason;
};

constexpr Effect kNoEffect = Effect::kNoEffect;
constexpr Effect kRefused = Effect::kRefused;

constexpr ForeignSpec kForeign[] = {
#define FOREIGN(commands, names, value, effect, reason) {commands, names, value, effect, reason},
#include "cli/foreign_options.def"
#undef FOREIGN
};

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// `reason`: why there is no other, or "".
Status check_choice(const std::string& name,
                    const std::string& value,
                    const std::string& choices,
                    const std::string& reason = {}) {
  const std::vector<std::string> taken = split_at(choices, '|');
  if (std::ranges::find(taken, value) != taken.end()) return {};
  return invalid_argument("{} is '{}'; expected one of {}{}{}",
                          name,
                          value.substr(0, 100),
                          choices,
                          reason.empty() ? "" : ": ",
                          reason);
}

Option make_foreign(const ForeignSpec& spec, const std::string& name) {
  Option option;
  option.names = {name};
  option.group = kForeignGroup;
  option.value_name = spec.value;
  option.help =
      std::string(spec.effect == kRefused ? "Refused: " : "No effect: ") + spec.reason + ".";
  option.negatable = option.value_name.empty() && !name.starts_with("--no-");
  option.set = [&spec, name](const std::string& value) -> Status {
    if (value == "false") return {};
    if (spec.effect == kRefused) return invalid_argument("{}: {}", name, spec.reason);
    const std::string choices = spec.value;
    if (!choices.empty() && choices != "TEXT") {
      RETURN_IF_ERROR(check_choice(name, value, choices, spec.reason));
    }
    log::warning("{} has no effect: {}", name, spec.reason);
    return {};
  };
  return option;
}

Option translated(std::string name, std::string value_name, std::string help) {
  Option option;
  option.names = {std::move(name)};
  option.group = kForeignGroup;
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  return option;
}

}  // namespace

std::vector<Option> foreign_options(uint32_t command) {
  std::vector<Option> options;
  for (const ForeignSpec& spec : kForeign) {
    if ((spec.commands & command) == 0) continue;
    for (const std::string& name : split_at(spec.names, ' ')) {
      if (name.starts_with("--")) {
        options.push_back(make_foreign(spec, name));
      } else {
        options.back().names.push_back(name);
      }
    }
  }
  return options;
}

std::vector<Option> translated_options(uint32_t command, EngineConfig* config) {
  if ((command & kCommandEngines) == 0) return {};
  std::vector<Option> options;
  Option eager = translated("--enforce-eager", "", "The same as --no-enable-graphs.");
  eager.negatable = true;
  eager.set = [config](const std::string& value) -> Status {
    config->device.enable_graphs = value != "true";
    return {};
  };
  options.push_back(std::move(eager));
  Option level = translated("--level", "0|1|2|3", "0 is --no-enable-graphs, the others no effect.");
  level.set = [config](const std::string& value) -> Status {
    RETURN_IF_ERROR(check_choice("--level", value, "0|1|2|3"));
    if (value == "0") config->device.enable_graphs = false;
    if (value != "0") log::warning("--level has no effect: nothing is compiled at run time");
    return {};
  };
  options.push_back(std::move(level));
  Option mode =
      translated("--cudagraph-mode", "NONE|FULL|FULL_DECODE_ONLY", "NONE is --no-enable-graphs.");
  mode.set = [config](const std::string& value) -> Status {
    RETURN_IF_ERROR(check_choice("--cudagraph-mode", value, "NONE|FULL|FULL_DECODE_ONLY"));
    config->device.enable_graphs = value != "NONE";
    return {};
  };
  options.push_back(std::move(mode));
  Option format = translated("--load-format",
                             "auto|safetensors|hf|dummy",
                             "dummy is --load-dummy, the others are how weights are read anyway.");
  format.set = [config](const std::string& value) -> Status {
    RETURN_IF_ERROR(check_choice("--load-format", value, "auto|safetensors|hf|dummy"));
    config->model.load_dummy = value == "dummy" ? DummyWeights::kRandom : DummyWeights::kNone;
    return {};
  };
  options.push_back(std::move(format));
  Option profiler =
      translated("--torch-profiler-dir", "FOLDER", "The same as --profile-dir; Perfetto's format.");
  profiler.set = [config](const std::string& value) -> Status {
    config->profile_dir = value;
    log::warning("--torch-profiler-dir: profiles are written in Perfetto's format");
    return {};
  };
  if ((command & (kCommandServe | kCommandGenerate | kCommandBench)) != 0) {
    options.push_back(std::move(profiler));
  }
  return options;
}

}  // namespace atom::cli
