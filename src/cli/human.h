// Numbers as people read them: three significant digits and a unit.
#pragma once

#include <cstdint>
#include <string>

namespace atom::cli {

// "512 B", "1.61 GiB": powers of 1024.
std::string human_bytes(uint64_t num_bytes);

// "8.40 M", "1.72 B": thousands, millions, billions, trillions; whole numbers below 1000.
std::string human_count(uint64_t count);

// "850 us", "12.3 ms", "1.50 s", "2 min 05 s", "3 h 07 min". Negative or not finite: "?".
std::string human_duration(double seconds);

}  // namespace atom::cli
