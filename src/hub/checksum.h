// The sums by which a hub names its files: SHA-256 of large ones, git's blob SHA-1 of small ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom::hub {

// An etag that is no sum (a mirror's own) cannot be verified.
bool is_checksum(std::string_view etag);

// The sum of the kind of `etag`, a checksum, over the first `size` bytes of a file, as lower-case
// hexadecimal. kAborted once `stop` is set.
Result<std::string> file_checksum(const std::string& path,
                                  uint64_t size,
                                  std::string_view etag,
                                  const std::atomic<bool>& stop);

}  // namespace atom::hub
