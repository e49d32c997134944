// Golden cases as parameters of a test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "config/model_config.h"

namespace atom {

inline std::string golden_case_name(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param.substr(param.param.find_last_of('/') + 1);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline bool quantizes_activations(const ModelConfig& config) {
  const std::vector<QuantConfig::Group>& groups = config.quantization.groups;
  return std::ranges::any_of(groups, [](const QuantConfig::Group& group) {
    return group.scheme.activations != QuantType::kNo;
  });
}

}  // namespace atom
