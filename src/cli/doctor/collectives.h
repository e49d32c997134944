// What the collectives of ranks as threads of this process take, as a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/collective_times.h"

namespace atom::cli::doctor {

// Of `num_ranks` threads, one core each, 256 bytes to 16 MiB; takes some seconds.
Result<std::vector<CollectiveTime>> measure_local_collectives(int32_t num_ranks);

// A row for each size: time and bus bandwidth of each operation.
std::string collectives_table(const std::vector<CollectiveTime>& times, int32_t num_ranks);

}  // namespace atom::cli::doctor
