#include "loader/load_model.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/mutex.h"
#include "loader/model_memory.h"
#include "loader/weight_copier.h"

namespace atom {
namespace {

// Pieces a tensor is copied in: enough of them to keep all threads busy on one large tensor, and
// what of the file is resident at a time.
constexpr int64_t kChunkBytes = int64_t{8} << 20;
constexpr size_t kMaxNamed = 10;

using ParameterMap = std::unordered_map<std::string, Parameter*>;

ParameterMap map_parameters(const Module& model) {
  ParameterMap map;
  for (const NamedParameter& named : model.named_parameters()) {
    CHECK(map.emplace(named.name, named.parameter).second);
  }
  return map;
}

// Tensors without dimensions hold one value.
Shape at_least_rank_one(const Shape& shape) {
  return shape.rank() == 0 ? Shape{1} : shape;
}

// A tensor that a parameter takes, and the slice of it.
struct Assignment {
  const CheckpointTensor* tensor;
  Parameter* parameter;
  int slice;
};

struct Plan {
  LoadAccount account;
  std::vector<Assignment> assignments;  // in the order of the checkpoint
};

// Finds the parameter of a tensor; null when there is none.
Parameter* find_parameter(const ParameterMap& parameters,
                          const MappedName& mapped,
                          TensorAccount* account) {
  if (const auto it = parameters.find(mapped.parameter); it != parameters.end()) {
    account->parameter = mapped.parameter;
    return it->second;
  }
  for (const MappedName::Packed& packed : mapped.packed) {
    const auto it = parameters.find(packed.parameter);
    if (it == parameters.end()) continue;
    account->parameter = packed.parameter;
    account->slice_id = packed.slice_id;
    return it->second;
  }
  return nullptr;
}

TensorAccount account_for_tensor(const CheckpointTensor& tensor,
                                 const ParameterMap& parameters,
                                 const WeightMapping& mapping,
                                 std::vector<Assignment>* assignments) {
  using Fate = TensorAccount::Fate;
  TensorAccount account;
  account.tensor = &tensor;
  const MappedName mapped = map_name(mapping, tensor.info.name);
  Parameter* parameter = find_parameter(parameters, mapped, &account);
  if (parameter == nullptr) {
    account.reason = ignore_reason(mapping, mapped.parameter);
    account.fate = account.reason.empty() ? Fate::kUnclaimed : Fate::kIgnored;
    return account;
  }
  account.fate = Fate::kRefused;
  if (!tensor.info.dtype) {
    account.reason = fmt::format("dtype {} is not supported", tensor.info.dtype_name);
    return account;
  }
  const Result<int> slice =
      parameter->claim(at_least_rank_one(tensor.info.shape), *tensor.info.dtype, account.slice_id);
  if (!slice.ok()) {
    account.reason = slice.status().message();
    return account;
  }
  if (!parameter->is_of_this_rank(*slice)) {
    account.fate = Fate::kOtherRank;
    return account;
  }
  account.fate = Fate::kLoaded;
  assignments->push_back({&tensor, parameter, *slice});
  return account;
}

// Slices that no tensor was even meant for: one whose tensor was refused is not missing.
std::vector<std::string> missing_parameters(const Module& model,
                                            const std::vector<TensorAccount>& tensors) {
  std::set<std::pair<std::string_view, std::string_view>> refused;
  for (const TensorAccount& account : tensors) {
    if (account.fate != TensorAccount::Fate::kRefused) continue;
    refused.emplace(account.parameter, account.slice_id);
  }
  std::vector<std::string> missing;
  for (const NamedParameter& named : model.named_parameters()) {
    for (const std::string& slice : named.parameter->missing_slices()) {
      if (refused.contains({named.name, slice})) continue;
      missing.push_back(slice.empty() ? named.name
                                      : fmt::format("{} (shard '{}')", named.name, slice));
    }
  }
  return missing;
}

Plan make_plan(const Module& model, const Checkpoint& checkpoint, const WeightMapping& mapping) {
  Plan plan;
  LoadAccount& account = plan.account;
  const ParameterMap parameters = map_parameters(model);
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    account.tensors.push_back(account_for_tensor(tensor, parameters, mapping, &plan.assignments));
    const TensorAccount& last = account.tensors.back();
    if (last.fate == TensorAccount::Fate::kIgnored) ++account.num_ignored;
    if (last.fate == TensorAccount::Fate::kOtherRank) ++account.num_other_rank;
    if (last.fate == TensorAccount::Fate::kLoaded) {
      ++account.num_loaded;
      account.loaded_bytes += tensor.info.num_bytes;
    }
  }
  account.missing_parameters = missing_parameters(model, account.tensors);
  return plan;
}

// "3 tensors no parameter takes: a, b, c"
void describe(std::span<const std::string> names, const char* what, std::string* message) {
  if (names.empty()) return;
  if (!message->empty()) *message += "; ";
  const std::span<const std::string> shown = names.first(std::min(names.size(), kMaxNamed));
  *message += fmt::format("{} {}: {}{}",
                          names.size(),
                          what,
                          fmt::join(shown, ", "),
                          names.size() > shown.size() ? ", ..." : "");
}

// A piece of one tensor: from the mapped file to its place in the parameter.
struct Chunk {
  Tensor source;
  Tensor target;
  RowEncoder* encoder;
  int64_t first_row;  // of the parameter, for the encoder
};

// Cuts what is large, or not contiguous where it goes, along its first dimension that can be cut;
// what comes of it again, along the next.
void append_chunks(const Parameter::Placement& placement, int dim, std::vector<Chunk>* chunks) {
  const auto& [source, target, encoder, first_row] = placement;
  if (source.num_elements() == 0) return;
  while (dim + 1 < source.rank() && source.size(dim) == 1) ++dim;
  const int64_t size = source.size(dim);
  const bool is_last = dim + 1 == source.rank();
  const bool is_whole = target.is_contiguous() || is_last;
  const int64_t row_bytes = std::max<int64_t>(1, source.num_bytes() / size);
  const int64_t step = is_whole ? std::max<int64_t>(1, kChunkBytes / row_bytes) : 1;
  for (int64_t begin = 0; begin < size; begin += step) {
    const int64_t length = std::min(step, size - begin);
    const Parameter::Placement part{source.narrow(dim, begin, length),
                                    target.narrow(dim, begin, length),
                                    encoder,
                                    dim == 0 ? first_row + begin : first_row};
    const bool is_small = part.source.num_bytes() <= kChunkBytes && part.target.is_contiguous();
    if (is_small || is_last) {
      chunks->push_back({part.source, part.target, encoder, part.first_row});
    } else {
      append_chunks(part, dim + 1, chunks);
    }
  }
}

// Reports the sum of what the threads have done.
class Progress {
 public:
  Progress(const LoadOptions& options, uint64_t total) : options_(options), total_(total) {}

  void add(uint64_t bytes) {
    if (!options_.progress) return;
    const MutexLock lock(&mutex_);
    done_ += bytes;
    options_.progress(done_, total_);
  }

 private:
  const LoadOptions& options_;
  const uint64_t total_;
  Mutex mutex_;
  uint64_t done_ GUARDED_BY(mutex_) = 0;
};

uint64_t bytes_to_copy(std::span<const Assignment> assignments) {
  uint64_t total = 0;
  for (const Assignment& assignment : assignments) {
    const TensorInfo& info = assignment.tensor->info;
    const Tensor source = Tensor::meta(at_least_rank_one(info.shape), *info.dtype);
    for (const Parameter::Placement& placement :
         assignment.parameter->place(source, assignment.slice)) {
      total += placement.source.num_bytes();
    }
  }
  return total;
}

Status copy_file(const CheckpointFile& file,
                 std::span<const Assignment> assignments,
                 const LoadOptions& options,
                 WeightCopier* copier,
                 Progress* progress) {
  if (assignments.empty()) return {};
  ASSIGN_OR_RETURN(const std::shared_ptr<const FileBytes> bytes,
                   FileBytes::open(file.path, options.use_mmap));
  if (bytes->size() != file.size) {
    return invalid_argument("{}: its size changed from {} to {} bytes while it was loaded",
                            file.path,
                            file.size,
                            bytes->size());
  }
  std::vector<Chunk> chunks;
  for (const Assignment& assignment : assignments) {
    const TensorInfo& info = assignment.tensor->info;
    void* data = const_cast<uint8_t*>(bytes->data()) + info.offset;
    const Tensor source(data, *info.dtype, at_least_rank_one(info.shape));
    for (const Parameter::Placement& placement :
         assignment.parameter->place(source, assignment.slice)) {
      append_chunks(placement, 0, &chunks);
    }
  }
  std::atomic<size_t> next{0};
  options.stream->pool().share([&](int worker) {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      const Chunk& chunk = chunks[i];
      if (chunk.encoder != nullptr) {
        copier->encode(worker, chunk.source, chunk.encoder, chunk.first_row);
      } else {
        copier->copy(worker, chunk.source, chunk.target);
      }
      const auto offset = static_cast<const uint8_t*>(chunk.source.raw_data()) - bytes->data();
      if (chunk.source.is_contiguous()) bytes->release(offset, chunk.source.num_bytes());
      progress->add(chunk.source.num_bytes());
    }
  });
  return {};
}

}  // namespace

Status LoadAccount::status() const {
  std::vector<std::string> unclaimed;
  std::vector<std::string> refused;
  for (const TensorAccount& account : tensors) {
    const std::string& name = account.tensor->info.name;
    if (account.fate == TensorAccount::Fate::kUnclaimed) unclaimed.push_back(name);
    if (account.fate == TensorAccount::Fate::kRefused) {
      refused.push_back(fmt::format("{} ({}: {})", name, account.parameter, account.reason));
    }
  }
  std::string message;
  describe(refused, "tensors do not fit their parameter", &message);
  describe(missing_parameters, "parameters have no tensor", &message);
  describe(unclaimed, "tensors have no parameter", &message);
  if (message.empty()) return {};
  return invalid_argument("the checkpoint does not match the model: {}", message);
}

LoadAccount account_for(const Module& model,
                        const Checkpoint& checkpoint,
                        const WeightMapping& mapping) {
  return make_plan(model, checkpoint, mapping).account;
}

Result<LoadReport> load_model(Module* model,
                              const Checkpoint& checkpoint,
                              const WeightMapping& mapping,
                              const LoadOptions& options) {
  CHECK(options.stream != nullptr);
  const auto start = std::chrono::steady_clock::now();
  Plan plan = make_plan(*model, checkpoint, mapping);
  RETURN_IF_ERROR(plan.account.status());
  RETURN_IF_ERROR(allocate_or_fail(model, *options.stream));
  Progress progress(options, bytes_to_copy(plan.assignments));
  WeightCopier copier(*options.stream);
  const std::span<const Assignment> assignments = plan.assignments;
  size_t begin = 0;
  for (int file = 0; file < static_cast<int>(checkpoint.files().size()); ++file) {
    size_t end = begin;
    while (end < assignments.size() && assignments[end].tensor->file == file) ++end;
    RETURN_IF_ERROR(copy_file(checkpoint.files()[file],
                              assignments.subspan(begin, end - begin),
                              options,
                              &copier,
                              &progress));
    begin = end;
  }
  copier.finish();
  RETURN_IF_ERROR(finish_or_fail(model, *options.stream));
  LoadReport report;
  report.account = std::move(plan.account);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace atom
