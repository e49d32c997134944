// Models of a model hub (huggingface.co, or a mirror of it) as local folders. Files are downloaded
// into the cache that huggingface_hub uses and found there the next time; docs/hub.md says how.
// Any thread, any number of processes at once.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "hub/hub_options.h"
#include "hub/model_name.h"

namespace atom::hub {

// A model in the cache.
struct Snapshot {
  std::string name;
  std::string commit;
  std::string folder;
  int num_files = 0;       // that atom reads
  uint64_t num_bytes = 0;  // of them together
  int num_downloaded_files = 0;
  uint64_t num_downloaded_bytes = 0;
  double seconds = 0;
};

// Brings the model's files into the cache, those that are not there yet. When the hub cannot be
// reached, what the cache has is taken, with a warning.
Result<Snapshot> pull(const ModelName& model,
                      const HubOptions& options,
                      const ProgressHandler& handler);

// Whether `name_or_folder` can only be a model of a hub: it reads as a name, and no such path
// exists.
bool is_hub_name(const std::string& name_or_folder);

// The folder of a checkpoint: `name_or_folder` itself, or of a name the folder that pull() gives.
Result<std::string> resolve_checkpoint(const std::string& name_or_folder,
                                       const HubOptions& options,
                                       const ProgressHandler& handler);

}  // namespace atom::hub
