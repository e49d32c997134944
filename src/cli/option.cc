#include "cli/option.h"

#include <fmt/format.h>

#include <utility>

#include "cli/parse_values.h"

namespace atom::cli {

Option text_option(std::string name,
                   std::string group,
                   std::string value_name,
                   std::string help,
                   std::string* target) {
  Option option;
  option.names = {std::move(name)};
  option.group = std::move(group);
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.set = [target](const std::string& value) -> Status {
    *target = value;
    return {};
  };
  return option;
}

Option switch_option(std::string name, std::string group, std::string help, bool* target) {
  Option option;
  option.names = {std::move(name)};
  option.group = std::move(group);
  option.help = std::move(help);
  option.set = [target](const std::string&) -> Status {
    *target = true;
    return {};
  };
  return option;
}

Option int_option(std::string name,
                  std::string group,
                  int32_t min,
                  int32_t max,
                  std::string help,
                  int32_t* target) {
  Option option;
  option.names = {name};
  option.group = std::move(group);
  option.value_name = "INT";
  option.range = fmt::format("[{}, {}]", min, max);
  option.default_value = fmt::format("{}", *target);
  option.help = std::move(help);
  option.set = [name, min, max, target](const std::string& text) -> Status {
    const std::optional<int32_t> value = parse_number<int32_t>(text);
    if (!value || *value < min || *value > max) {
      return invalid_argument(
          "{} is '{}'; expected an integer in [{}, {}]", name, text.substr(0, 100), min, max);
    }
    *target = *value;
    return {};
  };
  return option;
}

}  // namespace atom::cli
