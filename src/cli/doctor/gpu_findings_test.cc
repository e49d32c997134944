#include "cli/doctor/gpu_findings.h"

#include <gtest/gtest.h>

#include "cli/doctor/fake_system.h"

namespace atom::cli::doctor {
namespace {

GpuFacts nvidia_facts() {
  GpuFacts facts;
  facts.nvidia_models = {"NVIDIA H200", "NVIDIA H200"};
  facts.nvidia_driver = "575.57.08";
  facts.has_libcuda = true;
  facts.cuda_version = "13.0";
  facts.nvidia_devices = {"/dev/nvidia0", "/dev/nvidia1"};
  return facts;
}

TEST(GpuFindings, NoGpuIsOk) {
  const Findings findings = judge_gpu({});
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.name;
  }
  EXPECT_NE(find(findings, "this build").value.find("without GPU support"), std::string::npos);
}

TEST(GpuFindings, SaysThatAGpuStaysIdle) {
  const Findings findings = judge_gpu(nvidia_facts());
  EXPECT_NE(find(findings, "NVIDIA").value.find("2 x NVIDIA H200; driver 575.57.08"),
            std::string::npos);
  EXPECT_EQ(find(findings, "NVIDIA").severity, Severity::kOk);
  EXPECT_EQ(find(findings, "this build").severity, Severity::kNote);
  GpuFacts amd;
  amd.has_kfd = true;
  EXPECT_EQ(find(judge_gpu(amd), "this build").severity, Severity::kNote);
}

TEST(GpuFindings, ABuildWithTheBackendIsOk) {
  GpuFacts facts = nvidia_facts();
  facts.backends = "CUDA 13.0";
  facts.cards = {"NVIDIA H200, compute capability 9.0, 138.0 GiB of 139.8 GiB free"};
  facts.gemm_library = "cuBLASLt 13.1.0, libcublasLt.so.13";
  for (const Finding& finding : judge_gpu(facts)) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.name;
  }
  facts = {};
  facts.backends = "CUDA 13.0";
  EXPECT_EQ(find(judge_gpu(facts), "this build").severity, Severity::kNote);
}

TEST(GpuFindings, NotesWhatABuildWithTheBackendLacks) {
  GpuFacts facts = nvidia_facts();
  facts.backends = "CUDA 13.0";
  facts.card_problem = "compute capability 7.0; atom needs 8.0 or newer";
  EXPECT_EQ(find(judge_gpu(facts), "card").severity, Severity::kNote);
  EXPECT_NE(find(judge_gpu(facts), "card").advice.find("8.0 or newer"), std::string::npos);
  facts.card_problem.clear();
  facts.cards = {"NVIDIA H200"};
  facts.gemm_problem = "cuBLASLt was not found";
  EXPECT_EQ(find(judge_gpu(facts), "matrix library").severity, Severity::kNote);
  EXPECT_NE(find(judge_gpu(facts), "matrix library").advice.find("ATOM_CUBLASLT"),
            std::string::npos);
}

TEST(GpuFindings, ListsEveryCardAndWhichDoNotReachEachOther) {
  GpuFacts facts = nvidia_facts();
  facts.backends = "CUDA 13.0";
  facts.cards = {"NVIDIA H200", "NVIDIA H200", "NVIDIA H200"};
  EXPECT_EQ(find(judge_gpu(facts), "card 2").value, "NVIDIA H200");
  EXPECT_EQ(find(judge_gpu(facts), "peer access").severity, Severity::kOk);
  facts.apart = {"0 and 2", "1 and 2"};
  facts.card_problem = "card 3 is another";
  EXPECT_EQ(find(judge_gpu(facts), "peer access").severity, Severity::kNote);
  EXPECT_EQ(find(judge_gpu(facts), "peer access").value, "not between 0 and 2, 1 and 2");
  EXPECT_EQ(find(judge_gpu(facts), "another card").advice, "card 3 is another");
}

TEST(GpuFindings, NotesHalfADriver) {
  GpuFacts facts = nvidia_facts();
  facts.has_libcuda = false;
  EXPECT_NE(find(judge_gpu(facts), "NVIDIA").advice.find("libcuda1"), std::string::npos);
  facts = nvidia_facts();
  facts.nvidia_devices.clear();
  EXPECT_NE(find(judge_gpu(facts), "NVIDIA").advice.find("/dev/nvidia0"), std::string::npos);
  facts = {};
  facts.has_libcuda = true;
  EXPECT_NE(find(judge_gpu(facts), "NVIDIA").advice.find("kernel module"), std::string::npos);
}

TEST(GpuFindings, SaysWhatToInstall) {
  GpuFacts facts;
  facts.num_pci_cards = 1;
  EXPECT_EQ(find(judge_gpu(facts), "NVIDIA").severity, Severity::kNote);
  EXPECT_NE(find(judge_gpu(facts), "NVIDIA").advice.find("nvidia-driver"), std::string::npos);
  EXPECT_NE(find(judge_gpu(facts), "CUDA toolkit").advice.find("cmake --preset cuda"),
            std::string::npos);
  facts.has_nvcc = true;
  facts.toolkit = "13.0.2";
  EXPECT_EQ(find(judge_gpu(facts), "CUDA toolkit").value, "nvcc of 13.0.2");
  EXPECT_EQ(find(judge_gpu(facts), "CUDA toolkit").advice, "");
  // A build that has it needs no compiler to run.
  facts.has_nvcc = false;
  facts.backends = "CUDA 13.0";
  EXPECT_EQ(find(judge_gpu(facts), "CUDA toolkit").severity, Severity::kOk);
}

TEST(GpuFindings, ReadsTheMachine) {
  const FakeSystem system({
      {"/proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
       "GCC version:  gcc version 12.2.0\n"},
      {"/proc/driver/nvidia/gpus/0000:01:00.0/information",
       "Model: \t\t NVIDIA H200\nIRQ:   \t\t 40\n"},
      {"/dev/nvidia0", ""},
      {"/dev/nvidiactl", ""},
      {"/dev/kfd", ""},
      {"/usr/bin/nvidia-smi", ""},
      {"/usr/local/cuda/bin/nvcc", ""},
      {"/usr/local/cuda/version.json", R"({"cuda": {"name": "CUDA SDK", "version": "13.0.2"}})"},
      {"/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"},
      {"/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"},
      {"/sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de\n"},
      {"/sys/bus/pci/devices/0000:02:00.0/class", "0x040300\n"},
      {"/sys/bus/pci/devices/0000:03:00.0/vendor", "0x8086\n"},
      {"/sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n"},
  });
  const GpuFacts facts = read_gpu_facts(system.files());
  EXPECT_EQ(facts.nvidia_driver, "535.129.03");
  EXPECT_EQ(facts.nvidia_models, std::vector<std::string>{"NVIDIA H200"});
  EXPECT_EQ(facts.nvidia_devices, std::vector<std::string>{"/dev/nvidia0"});
  EXPECT_TRUE(facts.has_kfd);
  EXPECT_TRUE(facts.has_nvidia_smi);
  EXPECT_TRUE(facts.has_nvcc);
  EXPECT_EQ(facts.toolkit, "13.0.2");
  EXPECT_EQ(facts.num_pci_cards, 1);
  const GpuFacts none = read_gpu_facts(FakeSystem({}).files());
  EXPECT_EQ(none.nvidia_driver, "");
  EXPECT_TRUE(none.nvidia_models.empty());
  EXPECT_FALSE(none.has_kfd);
  EXPECT_EQ(none.toolkit, "");
  EXPECT_EQ(none.num_pci_cards, 0);
}

}  // namespace
}  // namespace atom::cli::doctor
