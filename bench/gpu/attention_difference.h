// How far two results of attention are from each other, found on the device.
#pragma once

#include <cstdint>

namespace atom::bench {

// The largest ||got - expected|| / ||expected|| of a row of `row_size` bfloat16 elements; infinite
// where a row has a NaN. Both are the device's.
double largest_row_difference(const void* got,
                              const void* expected,
                              int64_t num_rows,
                              int row_size);

}  // namespace atom::bench
