// Which files of a model atom reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/hub_options.h"

namespace atom::hub {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{128} << 20;

// Configuration, tokenizer and chat template.
const std::vector<std::string>& small_files();

// "weight_map" of an index: the files it names, sorted. They are plain names of .safetensors files.
// `where` begins each message.
Result<std::vector<std::string>> files_of_index(std::string_view text, std::string_view where);

}  // namespace atom::hub
