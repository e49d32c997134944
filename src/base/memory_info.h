// How much memory this process may still take, and how much it holds.
#pragma once

#include <cstdint>

namespace atom {

// Bytes available without swapping: the least of what the system and the cgroup have left.
int64_t available_memory();

// Bytes resident now.
int64_t resident_memory();

}  // namespace atom
