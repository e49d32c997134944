// The parts of the attention kernels' check and benchmark program.
#pragma once

namespace atom::bench {

// Prints a line per case; returns the number of failures.
int check_attention();

// Prints medians of times, with the share of the copy bandwidth or the FLOP rate.
void time_attention();

}  // namespace atom::bench
