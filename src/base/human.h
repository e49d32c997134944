// Sizes, counts and durations for people.
#pragma once

#include <cstdint>
#include <string>

namespace atom {

std::string human_bytes(int64_t bytes);      // "512 B", "1.5 KiB", "16.0 GiB"
std::string human_count(double count);       // "950", "8.4 M", "1.7 B"
std::string human_duration(double seconds);  // "3.2 ms", "1.50 s", "2 min 5 s"

}  // namespace atom
