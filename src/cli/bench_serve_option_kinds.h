// Kinds of options of `atom bench serve`. What they store into outlives them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/option.h"
#include "cli/parse_values.h"

namespace atom::cli {

inline constexpr int32_t kMaxRequests = 1 << 22;

Status wrong_value(std::string_view name, std::string_view text, std::string_view expected);

Option with_setter(std::string name,
                   const char* group,
                   std::string value_name,
                   std::string help,
                   std::function<Status(const std::string&)> set);

// A number above `above`; "inf" where `may_be_unlimited`.
Option number_option(const char* name,
                     const char* group,
                     double above,
                     bool may_be_unlimited,
                     const char* help,
                     double* target);

// One of a few words, each with what it stands for.
template <typename T>
Option choice_option(const char* name,
                     const char* group,
                     std::vector<std::pair<std::string, T>> values,
                     const char* default_value,
                     const char* help,
                     T* target) {
  std::string names;
  for (const auto& [word, value] : values) names += (names.empty() ? "" : "|") + word;
  Option option = with_setter(name, group, names, help, [=](const std::string& text) -> Status {
    for (const auto& [word, value] : values) {
      if (word != text) continue;
      *target = value;
      return {};
    }
    return wrong_value(name, text, "one of " + names);
  });
  option.default_value = default_value;
  return option;
}

// An integer in [min, kMaxRequests].
template <typename Count>
Option count_option(
    const char* name, const char* group, int32_t min, const char* help, Count* target) {
  Option option = with_setter(name, group, "INT", help, [=](const std::string& text) -> Status {
    const std::optional<int32_t> value = parse_number<int32_t>(text);
    if (!value || *value < min || *value > kMaxRequests) {
      return wrong_value(name, text, fmt::format("an integer in [{}, {}]", min, kMaxRequests));
    }
    *target = static_cast<Count>(*value);
    return {};
  });
  option.range = fmt::format("[{}, {}]", min, kMaxRequests);
  return option;
}

template <typename T>
Option with_default(Option option, const T& value) {
  option.default_value = fmt::format("{}", value);
  return option;
}

// With one more name.
Option with_name(Option option, const char* name);

// The parts between the separators, at least one.
std::vector<std::string_view> split_list(std::string_view text, char separator);

}  // namespace atom::cli
