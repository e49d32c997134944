#include "cli/engine_flags.h"

#include <iterator>
#include <utility>

#include "cli/foreign_options.h"
#include "config/flags.h"

namespace atom::cli {

std::vector<Option> engine_flags(uint32_t command, EngineConfig* config) {
  std::vector<Option> options;
  for (const FlagSpec& flag : flag_specs()) {
    if ((flag.commands & command) == 0) continue;
    Option option;
    option.names = {"--" + flag.name};
    option.names.insert(option.names.end(), flag.aliases.begin(), flag.aliases.end());
    option.group = flag.group;
    option.value_name = flag.value_name;
    option.implicit_value = flag.implicit_value;
    option.range = flag.range;
    option.default_value = flag.get(*config);  // a command may start from other values
    option.help = flag.help;
    option.negatable = flag.is_bool;
    option.set = [config, &flag](const std::string& value) { return flag.set(config, value); };
    options.push_back(std::move(option));
  }
  for (std::vector<Option> more : {translated_options(command, config), foreign_options(command)}) {
    options.insert(
        options.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return options;
}

}  // namespace atom::cli
