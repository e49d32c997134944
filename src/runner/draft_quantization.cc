#include "runner/draft_quantization.h"

#include <algorithm>
#include <set>
#include <string>

namespace atom {
namespace {

bool has_scale(const Checkpoint& checkpoint, const std::string& module) {
  return std::ranges::any_of(checkpoint.tensors(), [&](const CheckpointTensor& tensor) {
    const std::string& name = tensor.info.name;
    return name.starts_with(module + ".") && name.find("_scale") != std::string::npos;
  });
}

// "mtp", or "model.layers.<i>" behind the model's own.
std::set<std::string> draft_modules(const ModelConfig& config, const Checkpoint& checkpoint) {
  constexpr std::string_view kLayers = "model.layers.";
  std::set<std::string> modules;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.info.name;
    if (name.starts_with("mtp.")) modules.insert("mtp");
    if (!name.starts_with(kLayers)) continue;
    const std::string module = name.substr(0, name.find('.', kLayers.size()));
    const std::string number = module.substr(kLayers.size());
    const bool is_number = !number.empty() && number.size() < 6 &&
                           std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && std::stoi(number) >= config.num_hidden_layers) modules.insert(module);
  }
  return modules;
}

}  // namespace

ModelConfig with_draft_layers_as_stored(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelConfig stored = config;
  QuantConfig& quantization = stored.quantization;
  const bool is_stored_so = std::ranges::any_of(
      quantization.groups, [](const QuantConfig::Group& group) { return !group.scheme.online; });
  if (!is_stored_so) return stored;
  for (const std::string& module : draft_modules(config, checkpoint)) {
    if (has_scale(checkpoint, module)) continue;
    quantization.ignored.push_back(ModulePattern::parse(module).value());
  }
  return stored;
}

}  // namespace atom
