// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace atom {

// Bytes available without swapping: the least of what the system and the cgroup have left.
int64_t available_memory();

}  // namespace atom
