#include "cli/doctor/gpu_findings.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/human.h"
#include "base/json.h"
#include "ops/linear/library/gemm_library.h"
#include "tensor/device_runtime.h"

namespace atom::cli::doctor {
namespace {

constexpr const char* kGpuSection = "GPU";

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu ..." -> "535.129.03"
std::string driver_version(const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_version = word.find('.') != std::string::npos &&
                            word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
  }
  return text.empty() ? "" : "unknown version";
}

// cuDriverGetVersion() answers without initializing a device.
void ask_libcuda(GpuFacts* facts) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return;
  facts->has_libcuda = true;
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get_version != nullptr && get_version(&version) == 0) {
    facts->cuda_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  dlclose(library);
}

std::string card_text(const DeviceRuntime& runtime) {
  const DeviceFacts& card = runtime.facts();
  const DeviceRuntime::Memory memory = runtime.memory();
  return fmt::format("{}, compute capability {}.{}, {} of {} free",
                     card.name,
                     card.capability_major,
                     card.capability_minor,
                     human_bytes(memory.free),
                     human_bytes(memory.total));
}

void ask_cards(GpuFacts* facts) {
  const auto cards = device_facts(DeviceType::kCuda);
  if (!cards.ok()) {
    facts->card_problem = cards.status().message();
    return;
  }
  std::vector<const DeviceRuntime*> usable;
  for (int index = 0; index < std::ssize(*cards); ++index) {
    const Result<DeviceRuntime*> runtime = device_runtime(Device{DeviceType::kCuda, index});
    if (runtime.ok()) {
      facts->cards.push_back(card_text(**runtime));
      usable.push_back(*runtime);
    } else if (facts->card_problem.empty()) {
      facts->card_problem = runtime.status().message();
    }
  }
  for (const DeviceRuntime* one : usable) {
    for (const DeviceRuntime* other : usable) {
      const int first = one->device().index, second = other->device().index;
      if (first >= second || (one->can_reach(*other) && other->can_reach(*one))) continue;
      facts->apart.push_back(fmt::format("{} and {}", first, second));
    }
  }
}

void ask_gemm_library(GpuFacts* facts) {
  const Result<std::string> library = ops::gemm_library();
  (library.ok() ? facts->gemm_library : facts->gemm_problem) =
      library.ok() ? *library : library.status().message();
}

int count_pci_cards(const SystemFiles& files) {
  int count = 0;
  for (const std::string& name : files.list("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + name;
    // Class 03 is a display controller, which compute cards are as well.
    if (files.read(folder + "/vendor").starts_with("0x10de") &&
        files.read(folder + "/class").starts_with("0x03")) {
      ++count;
    }
  }
  return count;
}

// {"cuda": {"name": "CUDA SDK", "version": "13.0.2"}, ...}
std::string toolkit_version(const SystemFiles& files) {
  constexpr const char* kPath = "/usr/local/cuda/version.json";
  const Result<Json> json = parse_json(files.read(kPath), kPath);
  if (!json.ok() || !json->is_object() || !json->contains("cuda")) return "";
  const Json& cuda = (*json)["cuda"];
  if (!cuda.is_object() || !cuda.contains("version") || !cuda["version"].is_string()) return "";
  return cuda["version"].get<std::string>();
}

bool has_tool(const SystemFiles& files, const std::string& name) {
  for (const char* folder : {"/usr/local/cuda/bin/", "/usr/local/bin/", "/usr/bin/", "/bin/"}) {
    if (files.exists(folder + name)) return true;
  }
  return false;
}

// "2 x NVIDIA H200"
std::string count_models(const std::vector<std::string>& models) {
  std::map<std::string, int> counts;
  for (const std::string& model : models) ++counts[model];
  std::string text;
  for (const auto& [model, count] : counts) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, model);
  }
  return text;
}

Finding judge_nvidia(const GpuFacts& facts) {
  Finding finding{kGpuSection, "NVIDIA", Severity::kOk, "", ""};
  const bool has_driver = !facts.nvidia_driver.empty() || !facts.nvidia_devices.empty();
  if (!has_driver && !facts.has_libcuda) {
    finding.value = "no driver";
    if (facts.num_pci_cards > 0) {
      finding.value += fmt::format(", and {} card(s) on the bus", facts.num_pci_cards);
      finding.severity = Severity::kNote;
      finding.advice =
          "install NVIDIA's driver (https://www.nvidia.com/drivers, or the package nvidia-driver "
          "of the distribution); in a container, start it with --gpus all";
    }
    return finding;
  }
  finding.value = facts.nvidia_models.empty() ? "no GPU seen" : count_models(facts.nvidia_models);
  finding.value +=
      facts.nvidia_driver.empty() ? "; no kernel module" : "; driver " + facts.nvidia_driver;
  finding.value += facts.has_libcuda ? fmt::format("; libcuda for CUDA {}",
                                                   facts.cuda_version.empty() ? "of unknown version"
                                                                              : facts.cuda_version)
                                     : "; no libcuda.so.1";
  if (facts.has_nvidia_smi) finding.value += "; nvidia-smi";
  if (!has_driver) {
    finding.severity = Severity::kNote;
    finding.advice =
        "libcuda without a kernel module: the driver is not loaded, or a container "
        "was started without --gpus";
  } else if (!facts.has_libcuda) {
    finding.severity = Severity::kNote;
    finding.advice =
        "a driver without its library: install libcuda1 of the driver's version, or "
        "start the container with --gpus";
  } else if (facts.nvidia_devices.empty()) {
    finding.severity = Severity::kNote;
    finding.advice = "no /dev/nvidia0: the GPU is not passed into this container";
  }
  return finding;
}

Findings judge_cards(const GpuFacts& facts) {
  Findings findings;
  for (size_t i = 0; i < facts.cards.size(); ++i) {
    const std::string name = facts.cards.size() == 1 ? "card" : fmt::format("card {}", i);
    findings.push_back({kGpuSection, name, Severity::kOk, facts.cards[i], ""});
  }
  if (!facts.card_problem.empty()) {
    findings.push_back({kGpuSection,
                        facts.cards.empty() ? "card" : "another card",
                        Severity::kNote,
                        facts.cards.empty() ? "none that can be used" : "cannot be used",
                        facts.card_problem});
  }
  if (facts.cards.size() < 2) return findings;
  Finding reach{kGpuSection, "peer access", Severity::kOk, "every card reaches every other", ""};
  if (!facts.apart.empty()) {
    reach.severity = Severity::kNote;
    reach.value = "not between " + fmt::format("{}", fmt::join(facts.apart, ", "));
    reach.advice =
        "ranks of one engine need it: NVLink, or PCIe without an IOMMU or ACS in between "
        "(nvidia-smi topo -p2p rw shows it)";
  }
  findings.push_back(reach);
  return findings;
}

// Needed to build, not to run.
Finding judge_toolkit(const GpuFacts& facts) {
  Finding finding{kGpuSection, "CUDA toolkit", Severity::kOk, "", ""};
  if (facts.has_nvcc) {
    finding.value = facts.toolkit.empty() ? "nvcc" : "nvcc of " + facts.toolkit;
  } else {
    finding.value = "no nvcc";
    const bool has_card = !facts.nvidia_models.empty() || facts.num_pci_cards > 0;
    if (has_card && facts.backends.find("CUDA") == std::string::npos) {
      finding.severity = Severity::kNote;
      finding.advice =
          "a build that uses the GPU needs NVIDIA's CUDA toolkit, 13.0 or newer "
          "(https://developer.nvidia.com/cuda-downloads), then tools/setup.sh --cuda and "
          "cmake --preset cuda";
    }
  }
  return finding;
}

Finding judge_gemm_library(const GpuFacts& facts) {
  Finding finding{kGpuSection, "matrix library", Severity::kOk, facts.gemm_library, ""};
  if (facts.gemm_library.empty()) {
    finding.severity = Severity::kNote;
    finding.value = "none: matrix multiplications are slow";
    finding.advice =
        facts.gemm_problem +
        "; install CUDA's libcublas (the package libcublas-13-0 of NVIDIA's repository), or "
        "Python's package nvidia-cublas, and name its libcublasLt.so.13 in "
        "ATOM_CUBLASLT";
  }
  return finding;
}

}  // namespace

GpuFacts read_gpu_facts(const SystemFiles& files) {
  GpuFacts facts;
  facts.backends = device_backends();
  facts.nvidia_driver = driver_version(files.read("/proc/driver/nvidia/version"));
  for (const std::string& name : files.list("/proc/driver/nvidia/gpus")) {
    const std::string model =
        files.read_field("/proc/driver/nvidia/gpus/" + name + "/information", "Model");
    facts.nvidia_models.push_back(model.empty() ? "unknown" : model);
  }
  for (const std::string& name : files.list("/dev")) {
    if (name.size() > 6 && name.starts_with("nvidia") && name[6] >= '0' && name[6] <= '9') {
      facts.nvidia_devices.push_back("/dev/" + name);
    }
  }
  ask_libcuda(&facts);
  facts.has_nvidia_smi = has_tool(files, "nvidia-smi");
  facts.has_nvcc = has_tool(files, "nvcc");
  facts.toolkit = toolkit_version(files);
  facts.num_pci_cards = count_pci_cards(files);
  facts.has_kfd = files.exists("/dev/kfd");
  if (!facts.backends.empty()) {
    ask_cards(&facts);
    ask_gemm_library(&facts);
  }
  return facts;
}

Findings judge_gpu(const GpuFacts& facts) {
  Findings findings = {judge_nvidia(facts)};
  findings.push_back(
      {kGpuSection, "AMD", Severity::kOk, facts.has_kfd ? "driver" : "no driver", ""});
  Finding build{kGpuSection, "this build", Severity::kOk, "", ""};
  build.value = facts.backends.empty() ? "computes on the CPU alone, without GPU support"
                                       : "computes on the CPU and with " + facts.backends;
  const bool has_nvidia = !facts.nvidia_driver.empty() || !facts.nvidia_models.empty();
  const bool uses_cuda = facts.backends.find("CUDA") != std::string::npos;
  const bool uses_hip = facts.backends.find("HIP") != std::string::npos;
  if ((has_nvidia && !uses_cuda) || (facts.has_kfd && !uses_hip)) {
    build.severity = Severity::kNote;
    build.advice = "the GPU of this machine stays idle";
  } else if (!facts.backends.empty() && !has_nvidia && !facts.has_kfd) {
    build.severity = Severity::kNote;
    build.advice = "there is no GPU to use: the CPU is";
  }
  findings.push_back(build);
  findings.push_back(judge_toolkit(facts));
  if (has_nvidia && uses_cuda) {
    const Findings cards = judge_cards(facts);
    findings.insert(findings.end(), cards.begin(), cards.end());
    findings.push_back(judge_gemm_library(facts));
  }
  return findings;
}

}  // namespace atom::cli::doctor
