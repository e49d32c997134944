// A part of the attention kernels' check and benchmark program.
#pragma once

namespace atom::bench {

// Prints a line per case; returns the number of failures.
int check_attention();

}  // namespace atom::bench
