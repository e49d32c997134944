#include "engine/messages.h"

#include "base/wire.h"

namespace atom {
namespace {

constexpr size_t kMaxTokens = size_t{16} << 20;
constexpr size_t kMaxStrings = 1024;
constexpr size_t kMaxStringSize = size_t{1} << 20;
constexpr size_t kMaxRequests = size_t{1} << 20;
constexpr size_t kMaxAlternatives = SamplingParams::kMaxLogprobs + 1;

enum class RequestKind : uint8_t { kAdd, kAbort, kShutdown, kProfile };
enum class ResponseKind : uint8_t { kStep, kLoading, kReady, kFailed, kHeartbeat, kProfile };

// One pair of write_field() and read_field() per type of a sampling parameter.
template <typename T>
requires std::is_arithmetic_v<T>
void write_field(WireWriter& out, T value) {
  out.write(value);
}
void write_field(WireWriter& out, bool value) {
  out.write(static_cast<uint8_t>(value));
}
template <typename T>
void write_field(WireWriter& out, const std::optional<T>& value) {
  out.write_optional(value);
}
void write_field(WireWriter& out, const std::string& text) {
  out.write(text);
}
void write_field(WireWriter& out, const std::vector<std::string>& texts) {
  out.write_count(texts.size());
  for (const std::string& text : texts) out.write(text);
}
void write_field(WireWriter& out, const std::vector<int32_t>& ids) {
  out.write_span(std::span<const int32_t>(ids));
}
void write_field(WireWriter& out, const std::vector<std::vector<int32_t>>& sequences) {
  out.write_count(sequences.size());
  for (const std::vector<int32_t>& ids : sequences) write_field(out, ids);
}
void write_field(WireWriter& out, const LogitBias& biases) {
  out.write_count(biases.size());
  for (const auto& [token_id, bias] : biases) {
    out.write(token_id);
    out.write(bias);
  }
}

template <typename T>
requires std::is_arithmetic_v<T>
void read_field(WireReader& in, T* value) {
  *value = in.read<T>();
}
void read_field(WireReader& in, bool* value) {
  *value = in.read_bool();
}
template <typename T>
void read_field(WireReader& in, std::optional<T>* value) {
  *value = in.read_optional<T>();
}
void read_field(WireReader& in, std::string* text) {
  *text = in.read_string(kMaxStringSize);
}
void read_field(WireReader& in, std::vector<std::string>* texts) {
  const size_t count = in.read_count(kMaxStrings, sizeof(uint32_t));
  for (size_t i = 0; i < count && in.ok(); ++i) texts->push_back(in.read_string(kMaxStringSize));
}
void read_field(WireReader& in, std::vector<int32_t>* ids) {
  *ids = in.read_vector<int32_t>(kMaxTokens);
}
void read_field(WireReader& in, std::vector<std::vector<int32_t>>* sequences) {
  const size_t count = in.read_count(kMaxStrings, sizeof(uint32_t));
  for (size_t i = 0; i < count && in.ok(); ++i) {
    sequences->push_back(in.read_vector<int32_t>(kMaxTokens));
  }
}
void read_field(WireReader& in, LogitBias* biases) {
  const size_t count = in.read_count(kMaxTokens, sizeof(int32_t) + sizeof(float));
  for (size_t i = 0; i < count && in.ok(); ++i) {
    const auto token_id = in.read<int32_t>();
    biases->emplace_back(token_id, in.read<float>());
  }
}

void write(WireWriter& out, const SamplingParams& sampling) {
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) write_field(out, sampling.name);
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
}

SamplingParams read_sampling(WireReader& in) {
  SamplingParams sampling;
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) read_field(in, &sampling.name);
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
  return sampling;
}

void write(WireWriter& out, const std::vector<TokenLogprobs>& positions) {
  out.write_count(positions.size());
  for (const TokenLogprobs& alternatives : positions) {
    out.write_span(std::span<const TokenLogprob>(alternatives));
  }
}

std::vector<TokenLogprobs> read_logprobs(WireReader& in) {
  std::vector<TokenLogprobs> positions;
  const size_t count = in.read_count(kMaxTokens, sizeof(uint32_t));
  for (size_t i = 0; i < count && in.ok(); ++i) {
    positions.push_back(in.read_vector<TokenLogprob>(kMaxAlternatives));
  }
  return positions;
}

void write(WireWriter& out, const RequestDelta& delta) {
  out.write(delta.id);
  out.write_span(std::span<const int32_t>(delta.token_ids));
  write(out, delta.logprobs);
  write(out, delta.prompt_logprobs);
  out.write(delta.finish_reason);
  out.write_optional(delta.stop_token_id);
  out.write(delta.num_cached_tokens);
  out.write(delta.queue_ns);
  out.write(delta.error_code);
  out.write(delta.error);
}

RequestDelta read_delta(WireReader& in) {
  RequestDelta delta;
  delta.id = in.read<uint64_t>();
  delta.token_ids = in.read_vector<int32_t>(kMaxTokens);
  delta.logprobs = read_logprobs(in);
  delta.prompt_logprobs = read_logprobs(in);
  delta.finish_reason = in.read_enum(FinishReason::kError);
  delta.stop_token_id = in.read_optional<int32_t>();
  delta.num_cached_tokens = in.read<int32_t>();
  delta.queue_ns = in.read<uint64_t>();
  delta.error_code = in.read_enum(StatusCode::kInternal);
  delta.error = in.read_string(kMaxStringSize);
  return delta;
}

// A struct of numbers without padding, as it lies in memory.
template <typename T>
void write_plain(WireWriter& out, const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  out.write_span(std::span<const T>(&value, 1));
}

template <typename T>
T read_plain(WireReader& in) {
  const std::vector<T> values = in.read_vector<T>(1);
  if (values.size() == 1) return values[0];
  in.fail();
  return {};
}

StepOutput read_step(WireReader& in) {
  StepOutput step;
  const size_t count = in.read_count(kMaxRequests, sizeof(uint64_t));
  step.deltas.reserve(count);
  for (size_t i = 0; i < count && in.ok(); ++i) step.deltas.push_back(read_delta(in));
  step.stats = read_plain<CoreStats>(in);
  return step;
}

CoreLoading read_loading(WireReader& in) {
  CoreLoading loading;
  loading.stage = in.read_enum(LoadingStage::kGraphs);
  loading.done = in.read<uint64_t>();
  loading.total = in.read<uint64_t>();
  return loading;
}

CoreProfile read_profile(WireReader& in) {
  CoreProfile profile;
  profile.action = in.read_enum(ProfileAction::kStop);
  profile.code = in.read_enum(StatusCode::kInternal);
  profile.text = in.read_string(kMaxStringSize);
  profile.num_spans = in.read<uint64_t>();
  profile.num_dropped_spans = in.read<uint64_t>();
  return profile;
}

void write(WireWriter& out, const NewSequence& sequence) {
  out.write(sequence.id);
  out.write_span(std::span<const int32_t>(sequence.prompt_token_ids));
  write(out, sequence.sampling);
}

NewSequence read_new_sequence(WireReader& in) {
  NewSequence sequence;
  sequence.id = in.read<uint64_t>();
  sequence.prompt_token_ids = in.read_vector<int32_t>(kMaxTokens);
  sequence.sampling = read_sampling(in);
  return sequence;
}

void write(WireWriter& out, const ScheduledSequence& sequence) {
  out.write(sequence.id);
  out.write(sequence.num_computed_tokens);
  out.write(sequence.num_new_tokens);
  out.write(static_cast<uint8_t>(sequence.reset_block_table));
  out.write_span(std::span<const int32_t>(sequence.new_block_ids));
  out.write_span(std::span<const int32_t>(sequence.state_slots));
  out.write(sequence.num_sampled);
  out.write_span(std::span<const int32_t>(sequence.told_token_ids));
  out.write_span(std::span<const int32_t>(sequence.told_drafts));
}

ScheduledSequence read_scheduled_sequence(WireReader& in) {
  ScheduledSequence sequence;
  sequence.id = in.read<uint64_t>();
  sequence.num_computed_tokens = in.read<int32_t>();
  sequence.num_new_tokens = in.read<int32_t>();
  sequence.reset_block_table = in.read_bool();
  sequence.new_block_ids = in.read_vector<int32_t>(kMaxTokens);
  sequence.state_slots = in.read_vector<int32_t>(kMaxTokens);
  sequence.num_sampled = in.read<int32_t>();
  sequence.told_token_ids = in.read_vector<int32_t>(kMaxTokens);
  sequence.told_drafts = in.read_vector<int32_t>(kMaxTokens);
  return sequence;
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

std::vector<uint8_t> encode(const CoreRequest& request) {
  WireWriter out;
  if (const auto* add = std::get_if<AddRequest>(&request)) {
    out.write(RequestKind::kAdd);
    out.write(add->id);
    out.write_span(std::span<const int32_t>(add->prompt_token_ids));
    write(out, add->sampling);
  } else if (const auto* abort = std::get_if<AbortRequests>(&request)) {
    out.write(RequestKind::kAbort);
    out.write_span(std::span<const SequenceId>(abort->ids));
  } else if (const auto* profile = std::get_if<ControlProfile>(&request)) {
    out.write(RequestKind::kProfile);
    out.write(profile->action);
  } else {
    out.write(RequestKind::kShutdown);
  }
  return out.take();
}

std::vector<uint8_t> encode(const CoreResponse& response) {
  const auto* step = std::get_if<StepOutput>(&response);
  WireWriter out(step == nullptr ? 256 : 256 + 128 * step->deltas.size());
  if (step != nullptr) {
    out.write(ResponseKind::kStep);
    out.write_count(step->deltas.size());
    for (const RequestDelta& delta : step->deltas) write(out, delta);
    write_plain(out, step->stats);
  } else if (const auto* loading = std::get_if<CoreLoading>(&response)) {
    out.write(ResponseKind::kLoading);
    out.write(loading->stage);
    out.write(loading->done);
    out.write(loading->total);
  } else if (const auto* ready = std::get_if<CoreReady>(&response)) {
    out.write(ResponseKind::kReady);
    write_plain(out, *ready);
  } else if (const auto* heartbeat = std::get_if<CoreHeartbeat>(&response)) {
    out.write(ResponseKind::kHeartbeat);
    write_plain(out, *heartbeat);
  } else if (const auto* profile = std::get_if<CoreProfile>(&response)) {
    out.write(ResponseKind::kProfile);
    out.write(profile->action);
    out.write(profile->code);
    out.write(profile->text);
    out.write(profile->num_spans);
    out.write(profile->num_dropped_spans);
  } else {
    const auto& failed = std::get<CoreFailed>(response);
    out.write(ResponseKind::kFailed);
    out.write(failed.code);
    out.write(failed.reason);
  }
  return out.take();
}

Result<CoreRequest> decode_core_request(std::span<const uint8_t> bytes) {
  WireReader in(bytes);
  CoreRequest request;
  switch (in.read_enum(RequestKind::kProfile)) {
    case RequestKind::kAdd: {
      AddRequest add;
      add.id = in.read<uint64_t>();
      add.prompt_token_ids = in.read_vector<int32_t>(kMaxTokens);
      add.sampling = read_sampling(in);
      request = std::move(add);
      break;
    }
    case RequestKind::kAbort:
      request = AbortRequests{in.read_vector<SequenceId>(kMaxRequests)};
      break;
    case RequestKind::kShutdown:
      request = Shutdown{};
      break;
    case RequestKind::kProfile:
      request = ControlProfile{in.read_enum(ProfileAction::kStop)};
      break;
  }
  if (!in.finished())
    return invalid_argument("malformed request message of {} bytes", bytes.size());
  return request;
}

Result<CoreResponse> decode_core_response(std::span<const uint8_t> bytes) {
  WireReader in(bytes);
  CoreResponse response;
  switch (in.read_enum(ResponseKind::kProfile)) {
    case ResponseKind::kStep:
      response = read_step(in);
      break;
    case ResponseKind::kLoading:
      response = read_loading(in);
      break;
    case ResponseKind::kReady:
      response = read_plain<CoreReady>(in);
      break;
    case ResponseKind::kFailed: {
      const StatusCode code = in.read_enum(StatusCode::kInternal);
      if (code == StatusCode::kOk) in.fail();
      response = CoreFailed{code, in.read_string(kMaxStringSize)};
      break;
    }
    case ResponseKind::kHeartbeat:
      response = read_plain<CoreHeartbeat>(in);
      break;
    case ResponseKind::kProfile:
      response = read_profile(in);
      break;
  }
  if (!in.finished()) {
    return invalid_argument("malformed response message of {} bytes", bytes.size());
  }
  return response;
}

std::vector<uint8_t> encode(const SchedulerOutput& step) {
  WireWriter out;
  out.write(step.step);
  out.write_count(step.new_sequences.size());
  for (const NewSequence& sequence : step.new_sequences) write(out, sequence);
  out.write_count(step.scheduled.size());
  for (const ScheduledSequence& sequence : step.scheduled) write(out, sequence);
  out.write_span(std::span<const StateCopy>(step.state_restores));
  out.write_span(std::span<const StateCopy>(step.state_saves));
  out.write_span(std::span<const SequenceId>(step.finished));
  out.write(step.num_tokens);
  out.write(static_cast<uint8_t>(step.wants_drafts));
  out.write(static_cast<uint8_t>(step.is_dummy));
  return out.take();
}

Result<SchedulerOutput> decode_scheduler_output(std::span<const uint8_t> bytes) {
  WireReader in(bytes);
  SchedulerOutput step;
  step.step = in.read<uint64_t>();
  const size_t num_new = in.read_count(kMaxRequests, sizeof(uint64_t));
  for (size_t i = 0; i < num_new && in.ok(); ++i) {
    step.new_sequences.push_back(read_new_sequence(in));
  }
  const size_t num_scheduled = in.read_count(kMaxRequests, sizeof(uint64_t));
  for (size_t i = 0; i < num_scheduled && in.ok(); ++i) {
    step.scheduled.push_back(read_scheduled_sequence(in));
  }
  step.state_restores = in.read_vector<StateCopy>(kMaxRequests);
  step.state_saves = in.read_vector<StateCopy>(kMaxRequests);
  step.finished = in.read_vector<SequenceId>(kMaxRequests);
  step.num_tokens = in.read<int32_t>();
  step.wants_drafts = in.read_bool();
  step.is_dummy = in.read_bool();
  if (!in.finished()) return invalid_argument("a malformed step of another node");
  return step;
}

}  // namespace atom
