// Fills a model's parameters from a checkpoint, and proves that nothing was forgotten: at the end
// every parameter is filled and every tensor consumed or ignored by a rule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "loader/checkpoint.h"
#include "nn/module.h"
#include "nn/weight_mapping.h"
#include "tensor/stream.h"

namespace atom {

// What becomes of one tensor of the checkpoint.
struct TensorAccount {
  enum class Fate {
    kLoaded,
    kOtherRank,  // a slice that another rank holds: checked, not read
    kIgnored,
    kUnclaimed,  // no parameter and no rule knows it: an error
    kRefused,    // its parameter does not take it: an error
  };
  const CheckpointTensor* tensor = nullptr;  // of the checkpoint
  Fate fate = Fate::kUnclaimed;
  std::string parameter;  // name, unless ignored or unclaimed
  std::string slice_id;   // of a packed parameter
  std::string reason;     // the rule, when ignored; the error, when refused
};

struct LoadAccount {
  std::vector<TensorAccount> tensors;           // in the order of Checkpoint::tensors()
  std::vector<std::string> missing_parameters;  // with the slice, if packed
  int64_t num_loaded = 0;
  int64_t num_other_rank = 0;
  int64_t num_ignored = 0;
  uint64_t loaded_bytes = 0;

  bool complete() const { return status().ok(); }
  // One error that counts what is wrong and names up to ten of each kind.
  Status status() const;
};

// The account without reading any data: the model's parameters need no memory. Their slices count
// as loaded afterwards. The result refers to the checkpoint.
LoadAccount account_for(const Module& model,
                        const Checkpoint& checkpoint,
                        const WeightMapping& mapping);

struct LoadOptions {
  const Stream* stream = nullptr;  // needed: its device gets the parameters, its pool copies
  bool use_mmap = true;            // false reads the files, one at a time
  // Bytes copied so far and in all. Called from any thread of the pool, one call at a time.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

struct LoadReport {
  LoadAccount account;
  double seconds = 0;
};

// Checks the account, allocates the parameters, copies, and calls the model's finish_load. Nothing
// is allocated when the account is not complete. The report refers to the checkpoint.
Result<LoadReport> load_model(Module* model,
                              const Checkpoint& checkpoint,
                              const WeightMapping& mapping,
                              const LoadOptions& options);

}  // namespace atom
