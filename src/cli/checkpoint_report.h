// What a checkpoint folder holds and whether atom can load it, found without reading tensor data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "config/model_config.h"
#include "loader/checkpoint.h"
#include "loader/load_model.h"

namespace atom::cli {

struct CheckpointReport {
  std::string architecture;
  std::unique_ptr<const Checkpoint> checkpoint;
  int64_t num_parameters = 0;                 // elements of all tensors
  std::map<std::string, int64_t> num_dtypes;  // tensors by dtype as the files spell it
  std::string tokenizer_file;                 // empty: none
  std::string chat_template;                  // where it comes from; empty: none
  Status supported;                           // why not, if not
  // With a supported architecture.
  std::optional<ModelConfig> config;
  std::optional<LoadAccount> account;

  // Every tensor has its place: the checkpoint loads.
  Status loadable() const;
};

// An error when the folder is no readable checkpoint at all.
Result<CheckpointReport> report_checkpoint(const std::string& folder);

const char* fate_name(TensorAccount::Fate fate);

}  // namespace atom::cli
