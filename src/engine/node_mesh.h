// What nodes need to know to come together, from the configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "comm/tcp/mesh.h"
#include "config/resolve.h"

namespace atom {

// Reads the secret's file. `device`: on what kind nodes compute. They wait for each other for ever,
// or as long as `go_on` says.
Result<MeshOptions> node_mesh(const ResolvedConfig& config,
                              int64_t num_sampled_ids,
                              const std::string& device,
                              const std::function<bool()>& go_on);

}  // namespace atom
