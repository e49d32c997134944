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

  // Draft tokens accepted at each place behind a sampled token.
  static constexpr uint64_t CoreStats::*kAcceptedAt[] = {&CoreStats::num_accepted_at_0,
                                                         &CoreStats::num_accepted_at_1,
                                                         &CoreStats::num_accepted_at_2,
                                                         &CoreStats::num_accepted_at_3,
                                                         &CoreStats::num_accepted_at_4,
                                                         &CoreStats::num_accepted_at_5,
                                                         &CoreStats::num_accepted_at_6,
                                                         &CoreStats::num_accepted_at_7,
                                                         &CoreStats::num_accepted_at_8,
                                                         &CoreStats::num_accepted_at_9,
                                                         &CoreStats::num_accepted_at_10,
                                                         &CoreStats::num_accepted_at_11,
                                                         &CoreStats::num_accepted_at_12,
                                                         &CoreStats::num_accepted_at_13,
                                                         &CoreStats::num_accepted_at_14,
                                                         &CoreStats::num_accepted_at_15};

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
