// What an indexer makes of the product of a query head and a key.
#pragma once

#include <stdint.h>

namespace atom::ops {

enum class IndexerActivation : uint8_t { kIdentity, kRelu };

}  // namespace atom::ops
