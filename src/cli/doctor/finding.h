// What atom doctor says: one line per thing it looked at.
#pragma once

#include <string>
#include <vector>

namespace atom::cli::doctor {

enum class Severity {
  kOk,
  kNote,     // works, but not as well as it could, or not as one may expect
  kProblem,  // atom cannot serve
};

struct Finding {
  std::string section;  // "CPU"
  std::string name;     // "cores"
  Severity severity = Severity::kOk;
  std::string value;   // what there is
  std::string advice;  // what to do about it; empty when nothing is to be done
};

using Findings = std::vector<Finding>;

}  // namespace atom::cli::doctor
