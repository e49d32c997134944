// The tensors of a model folder: model.safetensors, or the files that model.safetensors.index.json
// names. Opening reads and checks every header; no tensor data. Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "loader/safetensors.h"

namespace atom {

struct CheckpointFile {
  std::string path;
  uint64_t size = 0;  // bytes
};

struct CheckpointTensor {
  TensorInfo info;
  int file = 0;  // index into files()
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);

  const std::vector<CheckpointFile>& files() const { return files_; }
  // Ordered by file, and within a file as the data are.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* find(std::string_view name) const;  // null when there is none
  uint64_t num_bytes() const;                                 // of all tensors' data

 private:
  Status add_file(const std::string& path);

  std::vector<CheckpointFile> files_;
  std::vector<CheckpointTensor> tensors_;
};

// "weight_map" of an index: (tensor, file) pairs sorted by tensor. File names are plain names
// within the folder. `where` begins each message.
Result<std::vector<std::pair<std::string, std::string>>> parse_checkpoint_index(
    std::string_view text, std::string_view where);

}  // namespace atom
