// Reads the text format back, for tests: written from its specification, independent of the writer.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace atom::server {

struct ParsedSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct ParsedFamily {
  std::string type;
  std::string help;
  std::vector<ParsedSample> samples;
};

struct ParsedExposition {
  std::map<std::string, ParsedFamily> families;
  std::vector<std::string> order;     // names of the families, as they came
  std::vector<std::string> problems;  // what the format or promtool would complain of

  // The value of the sample with exactly these labels; a problem when there is none.
  double value(const std::string& name, const std::map<std::string, std::string>& labels);
};

ParsedExposition parse_exposition(const std::string& text);

}  // namespace atom::server
