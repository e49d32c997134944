// The parts of the decode attention kernel's check and benchmark program.
#pragma once

namespace atom::bench {

// Prints a line per case; returns the number of failures.
int check_decode();

enum class DecodeTimes { kAll, kFew, kRows, kWays, kModels };

// Prints medians of times, with the share of the copy bandwidth: of all shapes or few of them, as
// launched by default and overlapping each other, or with kWays for several ways of dividing the
// work, with kRows of many rows by whole head items and in shares, or with kModels of other models'
// heads; and between launches of a small kernel, whose time is subtracted.
void time_decode(DecodeTimes times);

}  // namespace atom::bench
