// What config.json says of the indexers of DeepSeek sparse attention: their sizes, and which layers
// have one of their own.
#pragma once

#include <vector>

#include "models/blocks/mla_block.h"

namespace atom {

struct IndexerConfig {
  DsaOptions options;
  // One for each layer. A layer without attends to what the last one before it that has an indexer
  // selected (IndexShare, GLM-5.2).
  std::vector<bool> has_indexer;

  bool has_shared() const;
  // `attention` with the indexer of layer `layer`.
  MlaOptions with_indexer(MlaOptions attention, int layer) const;
};

// `interleaved`: of the rotation, where the file does not say.
Result<IndexerConfig> read_indexer_config(const ModelConfig& config,
                                          const MlaOptions& attention,
                                          bool interleaved);

}  // namespace atom
