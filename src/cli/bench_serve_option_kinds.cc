#include "cli/bench_serve_option_kinds.h"

#include <algorithm>
#include <cmath>

namespace atom::cli {

Status wrong_value(std::string_view name, std::string_view text, std::string_view expected) {
  return invalid_argument("{} is '{}'; expected {}", name, text.substr(0, 100), expected);
}

Option with_setter(std::string name,
                   const char* group,
                   std::string value_name,
                   std::string help,
                   std::function<Status(const std::string&)> set) {
  Option option;
  option.names = {std::move(name)};
  option.group = group;
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.set = std::move(set);
  return option;
}

Option number_option(const char* name,
                     const char* group,
                     double above,
                     bool may_be_unlimited,
                     const char* help,
                     double* target) {
  Option option = with_setter(name, group, "NUMBER", help, [=](const std::string& text) -> Status {
    const std::optional<double> value = parse_number<double>(text);
    if (!value || std::isnan(*value) || *value <= above ||
        (std::isinf(*value) && !may_be_unlimited)) {
      const std::string expected =
          fmt::format("a number above {:g}{}", above, may_be_unlimited ? " or inf" : "");
      return wrong_value(name, text, expected);
    }
    *target = *value;
    return {};
  });
  option.default_value = fmt::format("{:g}", *target);
  return option;
}

Option with_name(Option option, const char* name) {
  option.names.push_back(name);
  return option;
}

std::vector<std::string_view> split_list(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace atom::cli
