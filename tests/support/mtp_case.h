// Golden cases whose checkpoints bring no layer for multi-token prediction, with one.
#pragma once

#include <string>

#include "base/status.h"

namespace atom {

// What becomes of the indexers that layers may have.
enum class Indexers {
  kKept,
  kDropped,  // and the model is DeepSeek-V3: attention to all tokens
};

// Writes the checkpoint of the case in `case_folder`, of the family of DeepSeek, into the existing
// `out_folder`, with a layer for multi-token prediction that is made like the model's last one.
Status materialize_with_mtp(const std::string& case_folder,
                            const std::string& out_folder,
                            Indexers indexers = Indexers::kKept);

}  // namespace atom
