// Writes the checkpoint of a golden case for tests that are no C++: write_checkpoint CASE FOLDER
#include <cstdio>

#include "tests/support/synthetic_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: write_checkpoint CASE_FOLDER EXISTING_FOLDER\n", stderr);
    return 2;
  }
  const atom::Status status = atom::materialize_checkpoint(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "write_checkpoint: %s\n", status.message().c_str());
  return 1;
}
