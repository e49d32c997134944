// GPUs: what drivers and tools are installed, and whether this build can use them.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace atom::cli::doctor {

struct GpuFacts {
  std::string backends;                     // "CUDA"; empty: this build computes on the CPU alone
  std::vector<std::string> nvidia_models;   // one per GPU that the driver knows
  std::string nvidia_driver;                // version of the kernel module; empty: not loaded
  bool has_libcuda = false;                 // libcuda.so.1 is to be loaded
  std::string cuda_version;                 // that libcuda supports: "13.0"
  std::vector<std::string> nvidia_devices;  // /dev/nvidia0, ...
  bool has_nvidia_smi = false;
  bool has_nvcc = false;
  std::string toolkit;    // CUDA toolkit's version, "13.0.2", where its version.json says it
  int num_pci_cards = 0;  // NVIDIA's display and compute controllers on the bus, driver or not
  bool has_kfd = false;   // /dev/kfd: AMD's compute driver
  // With support for CUDA in this build: "NVIDIA H200, 139.8 GiB, 138.0 GiB free" of each card that
  // can be used, and why the first that cannot be is not; of several, pairs that do not reach each
  // other's memory, "0 and 1"; the library for matrix multiplication, or where it was looked for.
  std::vector<std::string> cards;
  std::string card_problem;
  std::vector<std::string> apart;
  std::string gemm_library;
  std::string gemm_problem;
};

// Loads libcuda.so.1 for a moment when it is there, and opens the cards that the build can use.
GpuFacts read_gpu_facts(const SystemFiles& files);
Findings judge_gpu(const GpuFacts& facts);

}  // namespace atom::cli::doctor
