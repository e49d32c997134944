#include "base/env.h"

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace atom {
namespace {

std::string get_string(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool get_bool(const char* name) {
  const std::string value = get_string(name);
  if (value.empty() || value == "0" || value == "false") return false;
  if (value == "1" || value == "true") return true;
  log::warning("{}='{}' is not a boolean (0, 1, false, true): taken as 0", name, value);
  return false;
}

int get_int(const char* name, int min, int max) {
  const std::string value = get_string(name);
  if (value.empty()) return 0;
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (*end == '\0' && parsed >= min && parsed <= max) return static_cast<int>(parsed);
  log::warning("{}='{}' is not an integer in [{}, {}]: ignored", name, value, min, max);
  return 0;
}

Env read_env() {
  Env env;
  env.disable_mmap = get_bool("ATOM_DISABLE_MMAP");
  env.cpu_isa = get_string("ATOM_CPU_ISA");
  env.op_variant = get_string("ATOM_OP_VARIANT");
  env.num_threads = get_int("ATOM_NUM_THREADS", 1, 1024);
  env.log_level = get_string("ATOM_LOG_LEVEL");
  env.no_color = !get_string("NO_COLOR").empty();
  return env;
}

}  // namespace

const Env& env() {
  static const Env instance = read_env();
  return instance;
}

}  // namespace atom
