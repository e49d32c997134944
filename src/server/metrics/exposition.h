// Prometheus' text format 0.0.4, in which /metrics answers. Mistakes in names are ours and CHECKed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "server/metrics/metric.h"

namespace atom::server {

inline constexpr const char* kExpositionContentType = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricType { kCounter, kGauge, kHistogram };

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

// `model="a",engine="0"`: values are escaped, and what is not UTF-8 in them becomes U+FFFD.
std::string format_labels(const Labels& labels);

// Not thread-safe.
class ExpositionWriter {
 public:
  // Begins a family: what follows are its samples. Each name once; a counter's ends in
  // _total, no other's does.
  void family(std::string_view name, MetricType type, std::string_view help);

  // Adds to the family begun last. `labels` come from format_labels() and may be empty.
  void sample(std::string_view labels, uint64_t value);
  void sample(std::string_view labels, double value);
  void histogram(std::string_view labels,
                 const Histogram::Snapshot& snapshot,
                 std::span<const double> bounds);

  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix,
            std::string_view labels,
            std::string_view extra_label,
            std::string_view value);

  std::string text_;
  std::string name_;
  MetricType type_ = MetricType::kGauge;
  std::unordered_set<std::string> names_;
};

}  // namespace atom::server
