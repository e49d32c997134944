// The file that remembers which of the library's algorithms was fastest, between runs: a JSON
// object of format, card, library and algorithms (fingerprints by the kind of call). Its content is
// not trusted: a fingerprint only chooses among the algorithms that the library itself proposes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"

namespace atom::ops {

struct AlgorithmTable {
  std::string card;     // "NVIDIA H200"
  std::string library;  // "cuBLASLt 13.1.0"
  std::map<std::string, uint64_t> fingerprints;
};

constexpr size_t kMaxAlgorithms = 20000;

// Where the table of a card and library lies in a folder.
std::string algorithm_file_path(const std::string& folder, const AlgorithmTable& table);

// Fills in the fingerprints. An error when there is no file, or it is not such a file for this card
// and library.
Status read_algorithms(const std::string& path, AlgorithmTable* table);

Status write_algorithms(const std::string& path, const AlgorithmTable& table);

}  // namespace atom::ops
