// What a checkpoint folder holds, as far as it can be told: an error in one part does not hide the
// others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "loader/checkpoint.h"
#include "loader/load_model.h"

namespace atom::cli {

struct Inspection {
  std::string architecture;
  Status supported;  // why atom cannot run it, if so
  std::optional<ModelConfig> config;

  Status checkpoint_status;
  std::unique_ptr<const Checkpoint> checkpoint;  // null: checkpoint_status says why
  std::optional<LoadAccount> account;  // of a supported architecture; refers to checkpoint

  std::string tokenizer;      // kind and size, or why there is none
  std::string chat_template;  // where it is, or why there is none

  // Elements and bytes of the checkpoint's tensors, all or by dtype name.
  int64_t num_elements() const;
  std::map<std::string, uint64_t> bytes_by_dtype() const;

  // That every parameter gets its tensor and every tensor is used or ignored by a rule.
  Status complete() const;
};

// An error when the folder has no config.json that can be read.
Result<Inspection> inspect(const std::string& folder);

// "loaded", "ignored", "UNCLAIMED", "REFUSED".
const char* fate_name(TensorAccount::Fate fate);

}  // namespace atom::cli
