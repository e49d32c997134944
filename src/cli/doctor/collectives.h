// What the collectives of ranks take that are threads of this process, on the CPU or with a card
// each, as a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/collective_times.h"

namespace atom::cli::doctor {

// Times `num_ranks` threads, one core each, 256 bytes to 16 MiB; takes some seconds.
Result<std::vector<CollectiveTime>> measure_local_collectives(int32_t num_ranks);

// Times the first `num_ranks` cards likewise. An error where there is no way between them.
Result<std::vector<CollectiveTime>> measure_card_collectives(int32_t num_ranks);

// A row for each size: time and bus bandwidth of each operation. `what`: whose, "2 ranks".
std::string collectives_table(const std::vector<CollectiveTime>& times,
                              const std::string& what,
                              int32_t num_ranks);

}  // namespace atom::cli::doctor
