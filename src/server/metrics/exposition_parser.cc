#include "server/metrics/exposition_parser.h"

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

namespace atom::server {
namespace {

std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      plain += text[i] == 'n' ? '\n' : text[i];
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool parse_sample(const std::string& line, ParsedSample* sample) {
  static const std::regex kLine(R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+))re");
  static const std::regex kLabel(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$))re");
  std::smatch match;
  if (!std::regex_match(line, match, kLine)) return false;
  sample->name = match[1];
  const std::string labels = match[2];
  auto position = labels.cbegin();
  while (position != labels.cend()) {
    std::smatch label;
    if (!std::regex_search(
            position, labels.cend(), label, kLabel, std::regex_constants::match_continuous)) {
      return false;
    }
    if (!sample->labels.emplace(label[1], unescaped(label[2])).second) return false;
    position = label[0].second;
  }
  const std::string value = match[3];
  size_t end = 0;
  sample->value = value == "+Inf" ? INFINITY : std::stod(value, &end);
  return value == "+Inf" || end == value.size();
}

bool belongs(const std::string& sample, const std::string& family, const std::string& type) {
  if (type != "histogram") return sample == family;
  return sample == family + "_bucket" || sample == family + "_sum" || sample == family + "_count";
}

// The rules of one histogram, whose samples are those that differ in `le` alone.
void check_histogram(const std::string& name,
                     const ParsedFamily& family,
                     std::vector<std::string>* problems) {
  struct Series {
    std::vector<std::pair<double, double>> buckets;
    double sum = -1;
    double count = -1;
  };
  std::map<std::map<std::string, std::string>, Series> all;
  for (const ParsedSample& sample : family.samples) {
    auto labels = sample.labels;
    labels.erase("le");
    Series& series = all[labels];
    if (sample.name == name + "_sum") series.sum = sample.value;
    if (sample.name == name + "_count") series.count = sample.value;
    if (sample.name != name + "_bucket") continue;
    const auto le = sample.labels.find("le");
    if (le == sample.labels.end()) {
      problems->push_back(name + ": bucket without le");
      continue;
    }
    series.buckets.emplace_back(le->second == "+Inf" ? INFINITY : std::stod(le->second),
                                sample.value);
  }
  for (const auto& [labels, series] : all) {
    if (series.buckets.empty() || !std::isinf(series.buckets.back().first)) {
      problems->push_back(name + ": no +Inf bucket at the end");
      continue;
    }
    for (size_t i = 1; i < series.buckets.size(); ++i) {
      if (series.buckets[i - 1].first >= series.buckets[i].first ||
          series.buckets[i - 1].second > series.buckets[i].second) {
        problems->push_back(name + ": buckets do not ascend");
      }
    }
    if (series.buckets.back().second != series.count) {
      problems->push_back(name + ": +Inf is not the count");
    }
    if (series.sum < 0) problems->push_back(name + ": no sum");
  }
}

}  // namespace

double ParsedExposition::value(const std::string& name,
                               const std::map<std::string, std::string>& labels) {
  for (const auto& [family_name, family] : families) {
    for (const ParsedSample& sample : family.samples) {
      if (sample.name == name && sample.labels == labels) return sample.value;
    }
  }
  problems.push_back("no sample " + name);
  return NAN;
}

ParsedExposition parse_exposition(const std::string& text) {
  ParsedExposition parsed;
  std::vector<std::string>& problems = parsed.problems;
  if (!text.empty() && text.back() != '\n') problems.push_back("no line feed at the end");
  std::set<std::pair<std::string, std::map<std::string, std::string>>> seen;
  std::istringstream lines(text);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (line.starts_with("# ")) {
      words >> hash >> keyword >> name;
      std::string rest;
      std::getline(words >> std::ws, rest);
      if (keyword == "HELP") {
        current = name;
        parsed.order.push_back(name);
        if (!parsed.families.emplace(name, ParsedFamily()).second) {
          problems.push_back(name + ": a second time");
        }
        parsed.families[name].help = unescaped(rest);
        if (rest.empty()) problems.push_back(name + ": no help");
      } else if (keyword == "TYPE") {
        if (name != current) problems.push_back(name + ": TYPE without HELP");
        parsed.families[name].type = rest;
        if (rest != "counter" && rest != "gauge" && rest != "histogram") {
          problems.push_back(name + ": type " + rest);
        }
        if (name.ends_with("_total") != (rest == "counter")) {
          problems.push_back(name + ": counters end in _total, nothing else does");
        }
      }
      continue;
    }
    ParsedSample sample;
    if (!parse_sample(line, &sample)) {
      problems.push_back("not a sample: " + line);
      continue;
    }
    ParsedFamily& family = parsed.families[current];
    if (!belongs(sample.name, current, family.type)) {
      problems.push_back(sample.name + ": under " + current);
    }
    if (!seen.emplace(sample.name, sample.labels).second) {
      problems.push_back("twice: " + line);
    }
    if (family.type != "gauge" && !(sample.value >= 0)) problems.push_back("negative: " + line);
    family.samples.push_back(std::move(sample));
  }
  for (const auto& [name, family] : parsed.families) {
    if (family.type == "histogram") check_histogram(name, family, &problems);
  }
  return parsed;
}

}  // namespace atom::server
