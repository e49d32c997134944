#include "tokenizer/hash.h"

#include <random>

namespace atom {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
  }();
  return seed;
}

}  // namespace atom
