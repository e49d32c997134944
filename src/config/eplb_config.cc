#include "config/eplb_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/config_reader.h"

namespace atom {
namespace {

constexpr const char* kEplbFlag = "--eplb-config";
constexpr int64_t kMaxRedundant = 65536;
constexpr int64_t kMaxEplbSteps = 1'000'000'000;
constexpr std::array<std::string_view, 5> kEplbKeys = {"num_redundant_experts",
                                                       "load_window_size",
                                                       "rebalance_interval",
                                                       "rebalance_min_balancedness",
                                                       "placement_policy"};

Status check_eplb_keys(const Json& json) {
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", kEplbFlag);
  for (const auto& [key, unused] : json.items()) {
    if (std::ranges::find(kEplbKeys, key) != kEplbKeys.end()) continue;
    return invalid_argument(
        "{}: unknown key '{}'; expected {}", kEplbFlag, key, fmt::join(kEplbKeys, ", "));
  }
  return {};
}

}  // namespace

Result<EplbConfig> resolve_eplb(const EplbConfig& config) {
  if (config.json.empty()) return config;
  if (!config.enabled) return invalid_argument("{} needs --enable-eplb", kEplbFlag);
  ASSIGN_OR_RETURN(const Json json, parse_json(config.json, kEplbFlag));
  RETURN_IF_ERROR(check_eplb_keys(json));
  const ConfigReader reader(json, kEplbFlag);
  EplbConfig resolved = config;
  ASSIGN_OR_RETURN(const int64_t redundant,
                   reader.get_int("num_redundant_experts", 0, kMaxRedundant, 0));
  ASSIGN_OR_RETURN(
      const int64_t interval,
      reader.get_int("rebalance_interval", 1, kMaxEplbSteps, config.rebalance_interval));
  // Loads count from where experts stand, so a window does not reach behind the last move.
  ASSIGN_OR_RETURN(
      const int64_t window,
      reader.get_int(
          "load_window_size", 1, interval, std::min<int64_t>(config.load_window_size, interval)));
  ASSIGN_OR_RETURN(resolved.rebalance_min_balancedness,
                   reader.get_double("rebalance_min_balancedness", 0, 1, 1));
  ASSIGN_OR_RETURN(const std::string policy, reader.get_string("placement_policy", "greedy"));
  if (policy != "greedy") {
    return unimplemented("{}: 'placement_policy' is '{}'; expected greedy", kEplbFlag, policy);
  }
  resolved.num_redundant_experts = static_cast<int32_t>(redundant);
  resolved.rebalance_interval = static_cast<int32_t>(interval);
  resolved.load_window_size = static_cast<int32_t>(window);
  return resolved;
}

}  // namespace atom
