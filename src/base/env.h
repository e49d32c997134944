// The environment variables of atom, read once when the program starts. Nothing else reads the
// environment. docs/environment.md lists them.
#pragma once

#include <string>

namespace atom {

struct Env {
  // ATOM_DISABLE_MMAP=1: read checkpoint files instead of mapping them.
  bool disable_mmap = false;
  // ATOM_CPU_ISA=scalar|avx2|avx512: the best instruction set that kernels may use.
  std::string cpu_isa;
  // ATOM_OP_VARIANT="linear=avx2,attention=reference": forces a variant of an operator.
  std::string op_variant;
  // ATOM_NUM_THREADS: size of the thread pool; 0 = the physical cores this process may use.
  int num_threads = 0;
  // ATOM_LOG_LEVEL: debug, info, warning, error or off.
  std::string log_level;
  // NO_COLOR (no-color.org): terminal output without colours.
  bool no_color = false;
};

const Env& env();

}  // namespace atom
