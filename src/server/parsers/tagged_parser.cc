#include "server/parsers/tagged_parser.h"

#include <utility>

#include "server/parsers/json_scanner.h"

namespace atom::server {
namespace {

// White space in front of the first marker is looked through up to this size.
constexpr size_t kMaxLeadingSpace = 256;

using Kind = TaggedSyntax::Kind;

void add(const std::vector<std::string>& texts,
         Kind kind,
         std::vector<MarkerSet::Marker>* markers) {
  for (const std::string& text : texts) markers->push_back({text, kind});
}

MarkerSet reasoning_markers(const ToolSyntax* tools, const ReasoningSyntax* reasoning, bool calls) {
  std::vector<MarkerSet::Marker> markers;
  if (reasoning != nullptr) markers.push_back({std::string(reasoning->close), Kind::kClose});
  if (tools != nullptr && calls) add(tools->begin_markers, Kind::kToolBegin, &markers);
  return MarkerSet(std::move(markers));
}

MarkerSet content_markers(const ToolSyntax* tools, bool calls) {
  return reasoning_markers(tools, nullptr, calls);
}

MarkerSet after_call_markers(const ToolSyntax* tools, const ReasoningSyntax* reasoning) {
  std::vector<MarkerSet::Marker> markers;
  if (reasoning != nullptr) markers.push_back({std::string(reasoning->close), Kind::kClose});
  if (tools != nullptr) {
    add(tools->begin_markers, Kind::kToolBegin, &markers);
    add(tools->end_markers, Kind::kToolEnd, &markers);
  }
  return MarkerSet(std::move(markers));
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

TaggedSyntax::TaggedSyntax(const ToolSyntax* tool_syntax, const ReasoningSyntax* reasoning_syntax)
    : tools(tool_syntax),
      reasoning(reasoning_syntax),
      in_reasoning(reasoning_markers(tools, reasoning, false)),
      in_content(content_markers(tools, false)),
      in_reasoning_with_tools(reasoning_markers(tools, reasoning, true)),
      in_content_with_tools(content_markers(tools, true)),
      after_call(after_call_markers(tools, reasoning)) {}

TaggedParser::TaggedParser(const TaggedSyntax& syntax,
                           std::string_view prompt_tail,
                           const OrderedJson* tools,
                           uint64_t id_seed)
    : syntax_(syntax),
      with_tools_(tools != nullptr && syntax.tools != nullptr),
      out_({.trim_reasoning = true,
            .trim_content = with_tools_,
            .id_style = syntax.tools == nullptr ? CallIdStyle::kOpenAi : syntax.tools->id_style,
            .id_seed = id_seed}) {
  if (with_tools_ && syntax.tools->typed) types_ = std::make_shared<ToolTypes>(*tools);
  if (syntax.reasoning == nullptr) {
    if (!with_tools_ || !syntax.tools->bare_object) state_ = State::kContent;
    return;
  }
  const std::string_view prompt = trim_end(prompt_tail);
  if (prompt.ends_with(syntax.reasoning->open)) {
    state_ = State::kReasoning;
  } else if (prompt.ends_with(syntax.reasoning->close)) {
    state_ = State::kContent;
    out_.end_reasoning();
  }
}

OutputDelta TaggedParser::feed(std::string_view text) {
  held_.feed(text, [this](std::string_view known) { return run(known, false); });
  return out_.take();
}

OutputDelta TaggedParser::finish() {
  run(held_.take(), true);
  if (state_ == State::kCalls) {
    reader_->finish(out_);
    end_calls();
  }
  if (state_ == State::kStart) begin_content();
  out_.finish();
  return out_.take();
}

size_t TaggedParser::run(std::string_view text, bool final) {
  size_t used = 0;
  while (used < text.size()) {
    const State state = state_;
    const size_t taken = step(text.substr(used), final);
    used += taken;
    if (taken == 0 && state == state_) break;
  }
  return used;
}

size_t TaggedParser::step(std::string_view text, bool final) {
  switch (state_) {
    case State::kStart:
      return read_start(text, final);
    case State::kReasoning:
      return read_reasoning(text, final);
    case State::kContent:
      return read_content(text, final);
    case State::kCalls:
      return read_calls(text, final);
  }
  return 0;
}

void TaggedParser::begin_content() {
  state_ = State::kContent;
  out_.content(space_);
  space_.clear();
}

// Looks through white space for what opens the reasoning or is a bare call.
size_t TaggedParser::read_start(std::string_view text, bool final) {
  size_t used = 0;
  while (used < text.size() && is_json_space(text[used]) && space_.size() < kMaxLeadingSpace) {
    space_.push_back(text[used++]);
  }
  if (used == text.size()) return used;
  const std::string_view rest = text.substr(used);
  if (syntax_.reasoning != nullptr) {
    const auto& [open, close, comes_first] = *syntax_.reasoning;
    if (rest.starts_with(open)) {
      state_ = State::kReasoning;
      return used + open.size();
    }
    if (rest.starts_with(close)) {  // of reasoning that the prompt opened earlier
      state_ = State::kContent;
      out_.end_reasoning();
      return used + close.size();
    }
    if (!final && (open.starts_with(rest) || close.starts_with(rest))) return used;
    if (comes_first) {
      space_.clear();
      state_ = State::kReasoning;
      return used;
    }
  }
  if (with_tools_ && syntax_.tools->bare_object && rest[0] == '{') {
    begin_calls({});
  } else {
    begin_content();
  }
  return used;
}

size_t TaggedParser::read_reasoning(std::string_view text, bool final) {
  const MarkerSet& markers = with_tools_ ? syntax_.in_reasoning_with_tools : syntax_.in_reasoning;
  const MarkerSet::Match match = markers.find(text, final);
  if (match.position > 0) out_.reasoning(text.substr(0, match.position));
  const size_t used = match.position + match.size;
  if (match.kind == TaggedSyntax::kClose) {
    state_ = State::kContent;
    out_.end_reasoning();
  } else if (match.kind == TaggedSyntax::kToolBegin) {
    begin_calls(text.substr(match.position, match.size));
  }
  return used;
}

size_t TaggedParser::read_content(std::string_view text, bool final) {
  const MarkerSet& markers = left_over_    ? syntax_.after_call
                             : with_tools_ ? syntax_.in_content_with_tools
                                           : syntax_.in_content;
  const MarkerSet::Match match = markers.find(text, final);
  if (match.position > 0) out_.content(text.substr(0, match.position));
  if (match.kind == TaggedSyntax::kToolBegin) begin_calls(text.substr(match.position, match.size));
  return match.position + match.size;
}

void TaggedParser::begin_calls(std::string_view marker) {
  calls_in_reasoning_ = state_ == State::kReasoning;
  state_ = State::kCalls;
  num_calls_before_ = out_.num_calls();
  if (reader_ == nullptr) reader_ = syntax_.tools->make_reader(types_);
  reader_->start(marker);
}

size_t TaggedParser::read_calls(std::string_view text, bool final) {
  const size_t used = reader_->read(text, final, out_);
  if (reader_->status() != ToolCallReader::Status::kReading) end_calls();
  return used;
}

// A call ends the reasoning that it stands in; what turned out to be none does not.
void TaggedParser::end_calls() {
  const bool any = out_.num_calls() > num_calls_before_;
  const bool rejected = reader_->status() == ToolCallReader::Status::kRejected;
  state_ = calls_in_reasoning_ && !any ? State::kReasoning : State::kContent;
  left_over_ = (any && calls_in_reasoning_) || (!rejected && reader_->left_early());
  const std::string space = std::exchange(space_, {});
  if (!rejected) return;
  if (!any) out_.content(space);
  const std::string text = reader_->take_undecided();
  if (state_ == State::kReasoning) {
    out_.reasoning(text);
  } else {
    out_.content(text);
  }
}

}  // namespace atom::server
