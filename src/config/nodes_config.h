// How copies of a model are spread over machines ("nodes"): several to one, or one over several.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace atom {

struct EngineConfig;

struct NodesConfig {
  int32_t num_nodes = 1;
  int32_t node_rank = 0;  // 0: the head, which takes requests; others compute for it
  std::string master_address = "127.0.0.1";  // of the head
  int32_t master_port = 29501;
  std::string secret_file;  // the same text for all nodes, by which they know each other

  bool is_head() const { return node_rank == 0; }
};

// Why `config` cannot be spread over its nodes.
Status check_nodes(const EngineConfig& config);

// What has to be the same on all nodes for them to compute one model, as a short text: the version,
// the flags that decide what is computed, and the checkpoint's configuration and files, whose
// contents are not read.
Result<std::string> digest_for_nodes(const EngineConfig& config, const std::string& version);

}  // namespace atom
