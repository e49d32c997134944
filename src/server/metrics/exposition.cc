#include "server/metrics/exposition.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/utf8.h"

namespace atom::server {
namespace {

bool is_name(std::string_view text, bool colons) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_' && !(colons && c == ':')) return false;
  }
  return true;
}

std::string escaped(std::string_view value, bool quotes) {
  std::string text;
  for (const char c : to_valid_utf8(value)) {
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\\' || (quotes && c == '"')) {
      text += {'\\', c};
    } else {
      text += c;
    }
  }
  return text;
}

std::string format_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// "1.0", not "1": as vLLM and Prometheus itself write a bound, so that series of both match.
std::string format_bound(double bound) {
  return bound == std::floor(bound) && bound < 1e15 ? fmt::format("{:.1f}", bound)
                                                    : fmt::format("{}", bound);
}

const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

std::string format_labels(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    CHECK(is_name(name, false));
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value, true));
  }
  return text;
}

void ExpositionWriter::family(std::string_view name, MetricType type, std::string_view help) {
  CHECK(is_name(name, true));
  CHECK(names_.emplace(name).second);
  CHECK(name.ends_with("_total") == (type == MetricType::kCounter));
  name_ = name;
  type_ = type;
  text_ += fmt::format(
      "# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, type_name(type));
}

void ExpositionWriter::sample(std::string_view labels, uint64_t value) {
  CHECK(type_ != MetricType::kHistogram);
  line("", labels, "", fmt::format("{}", value));
}

void ExpositionWriter::sample(std::string_view labels, double value) {
  CHECK(type_ != MetricType::kHistogram);
  line("", labels, "", format_value(value));
}

void ExpositionWriter::histogram(std::string_view labels,
                                 const Histogram::Snapshot& snapshot,
                                 std::span<const double> bounds) {
  CHECK(type_ == MetricType::kHistogram);
  CHECK(snapshot.cumulative.size() == bounds.size() + 1);
  for (size_t i = 0; i < bounds.size(); ++i) {
    line("_bucket",
         labels,
         fmt::format("le=\"{}\"", format_bound(bounds[i])),
         fmt::format("{}", snapshot.cumulative[i]));
  }
  const std::string count = fmt::format("{}", snapshot.cumulative.back());
  line("_bucket", labels, "le=\"+Inf\"", count);
  line("_sum", labels, "", format_value(snapshot.sum));
  line("_count", labels, "", count);
}

void ExpositionWriter::line(std::string_view suffix,
                            std::string_view labels,
                            std::string_view extra_label,
                            std::string_view value) {
  text_.append(name_).append(suffix);
  if (!labels.empty() || !extra_label.empty()) {
    text_ += '{';
    text_.append(labels);
    if (!labels.empty() && !extra_label.empty()) text_ += ',';
    text_.append(extra_label) += '}';
  }
  text_ += ' ';
  text_.append(value) += '\n';
}

}  // namespace atom::server
