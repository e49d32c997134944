// State of an engine core after a step, for metrics and bench; core_stats.def describes the
// figures.
#pragma once

#include <cstdint>

namespace atom {

struct CoreStats {
#define COUNTER(name, family, parts, help) uint64_t name = 0;
#define GAUGE(name, family, help) int64_t name = 0;
#include "engine/core_stats.def"
#undef COUNTER
#undef GAUGE

  // Counters of an earlier life of the core; gauges stay as they are.
  void add_counters(const CoreStats& earlier) {
#define COUNTER(name, family, parts, help) name += earlier.name;
#define GAUGE(name, family, help)
#include "engine/core_stats.def"
#undef COUNTER
#undef GAUGE
  }

  // Those of another core at the same time.
  void add(const CoreStats& other) {
#define COUNTER(name, family, parts, help) name += other.name;
#define GAUGE(name, family, help) name += other.name;
#include "engine/core_stats.def"
#undef COUNTER
#undef GAUGE
  }
};

}  // namespace atom
