// The parts of the decode attention kernel's check and benchmark program.
#pragma once

namespace atom::bench {

// Prints a line per case; returns the number of failures.
int check_decode();

// Prints medians of times, with the share of the copy bandwidth. With `all` for several ways of
// dividing the work.
void time_decode(bool all);

}  // namespace atom::bench
