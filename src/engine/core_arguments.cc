#include "engine/core_arguments.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "config/flags.h"

namespace atom {
namespace {

Result<int64_t> parse_number(std::string_view name, std::string_view text, int64_t max) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= 0 && value <= max) return value;
  return invalid_argument("--{} is '{}'; expected an integer in [0, {}]", name, text, max);
}

Status set_argument(std::string_view name, std::string_view value, CoreArguments* arguments) {
  EngineCoreEndpoints& endpoints = arguments->endpoints;
  constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
  if (name == "requests") {
    endpoints.requests = value;
  } else if (name == "responses") {
    endpoints.responses = value;
  } else if (name == "identity") {
    endpoints.identity = value;
  } else if (name == "heartbeat-ms") {
    ASSIGN_OR_RETURN(const int64_t milliseconds, parse_number(name, value, kMaxInt));
    endpoints.heartbeat = std::chrono::milliseconds(milliseconds);
  } else if (name == "num-sampled-ids") {
    ASSIGN_OR_RETURN(arguments->num_sampled_ids, parse_number(name, value, kMaxInt));
  } else if (name == "lifeline") {
    ASSIGN_OR_RETURN(const int64_t fd, parse_number(name, value, kMaxInt));
    arguments->lifeline = static_cast<int>(fd);
  } else if (const FlagSpec* flag = find_flag(name)) {
    return flag->set(&arguments->config, value);
  } else {
    return invalid_argument("unknown option '--{}'", name);
  }
  return {};
}

}  // namespace

std::vector<std::string> format_core_arguments(const CoreArguments& arguments) {
  const EngineCoreEndpoints& endpoints = arguments.endpoints;
  std::vector<std::string> result = {kEngineCoreCommand,
                                     "--requests=" + endpoints.requests,
                                     "--responses=" + endpoints.responses,
                                     "--identity=" + endpoints.identity,
                                     fmt::format("--heartbeat-ms={}", endpoints.heartbeat.count()),
                                     fmt::format("--num-sampled-ids={}", arguments.num_sampled_ids),
                                     fmt::format("--lifeline={}", arguments.lifeline)};
  for (const FlagSpec& flag : flag_specs()) {
    const std::string value = flag.get(arguments.config);
    if (value != flag.default_value) result.push_back(fmt::format("--{}={}", flag.name, value));
  }
  return result;
}

Result<CoreArguments> parse_core_arguments(std::span<const std::string> arguments) {
  CoreArguments result;
  for (const std::string_view argument : arguments) {
    const size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string_view::npos) {
      return invalid_argument("unexpected argument '{}': expected --name=value", argument);
    }
    RETURN_IF_ERROR(
        set_argument(argument.substr(2, equals - 2), argument.substr(equals + 1), &result));
  }
  const EngineCoreEndpoints& endpoints = result.endpoints;
  if (endpoints.requests.empty() || endpoints.responses.empty() || endpoints.identity.empty()) {
    return invalid_argument("--requests, --responses and --identity are needed");
  }
  return result;
}

}  // namespace atom
