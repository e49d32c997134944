// A golden case's model folder without its weights: config.json, and a safetensors file whose
// header is that of the case and whose data is a hole. Both may be changed before they are written.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/support/test_folders.h"

namespace atom {

struct HeaderTensor {
  std::string name;
  std::string dtype;  // as checkpoint.json spells it
  std::vector<int64_t> shape;
};

class HeaderFolder {
 public:
  static Result<std::unique_ptr<HeaderFolder>> open(const std::string& case_folder);

  const std::string& path() const { return folder_.path(); }
  const Json& config() const { return config_; }
  const std::vector<HeaderTensor>& tensors() const { return tensors_; }

  void write_config(const Json& config) const;
  void write_tensors(const std::vector<HeaderTensor>& tensors) const;

 private:
  TemporaryFolder folder_;
  Json config_;
  std::vector<HeaderTensor> tensors_;
};

}  // namespace atom
