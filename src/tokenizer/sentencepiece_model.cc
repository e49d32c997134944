#include "tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <exception>

#include "tokenizer/unicode.h"

namespace atom {

namespace {

using Processor = sentencepiece::SentencePieceProcessor;

constexpr std::string_view kWordMark = "▁";
// ModelProto { normalizer_spec { add_dummy_prefix: false } }: messages that follow one another are
// merged, so that appending this switches the prefix off.
constexpr std::string_view kWithoutDummyPrefix("\x1A\x02\x18\x00", 4);

Result<std::unique_ptr<Processor>> load_processor(const std::string& proto,
                                                  const std::string& where) {
  auto processor = std::make_unique<Processor>();
  try {
    const auto status = processor->LoadFromSerializedProto(proto);
    if (!status.ok()) {
      return invalid_argument("{}: not a SentencePiece model: {}", where, status.ToString());
    }
  } catch (const std::exception& e) {
    return invalid_argument("{}: not a SentencePiece model: {}", where, e.what());
  }
  return processor;
}

}  // namespace

SentencePieceModel::SentencePieceModel() = default;
SentencePieceModel::~SentencePieceModel() = default;

Result<std::unique_ptr<SentencePieceModel>> SentencePieceModel::load(std::string_view proto,
                                                                     bool legacy,
                                                                     const std::string& where) {
  std::unique_ptr<SentencePieceModel> model(new SentencePieceModel());
  ASSIGN_OR_RETURN(model->processor_, load_processor(std::string(proto), where));
  const Processor& processor = *model->processor_;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    if (!is_valid_utf8(piece)) {
      return invalid_argument("{}: piece {} is not valid UTF-8", where, id);
    }
    if (const Status status = model->vocabulary_.add(piece, id); !status.ok()) {
      return status.with_context(where);
    }
    // The library looks for user-defined pieces itself.
    if (processor.IsControl(id)) {
      AddedToken token;
      token.id = id;
      token.content = piece;
      token.special = true;
      model->added_tokens_.push_back(std::move(token));
    }
  }
  std::vector<std::string> pieces;
  if (!processor.Encode("a", &pieces).ok()) {
    return invalid_argument("{}: the SentencePiece model cannot encode", where);
  }
  model->adds_leading_space_ = !pieces.empty() && pieces[0].starts_with(kWordMark);
  if (!legacy && model->adds_leading_space_) {
    ASSIGN_OR_RETURN(model->without_space_,
                     load_processor(std::string(proto).append(kWithoutDummyPrefix), where));
  }
  return model;
}

Status SentencePieceModel::encode(std::string_view valid_text,
                                  std::span<const TextSpan> pieces,
                                  bool at_start,
                                  ModelWorkspace* workspace,
                                  std::vector<int32_t>* ids) const {
  const EncodeLimits& limits = workspace->limits;
  for (const TextSpan& span : pieces) {
    if (ids->size() > limits.max_tokens || limits.is_cancelled()) break;
    const Processor& processor =
        at_start || without_space_ == nullptr ? *processor_ : *without_space_;
    std::vector<int> piece_ids;
    try {
      const auto status =
          processor.Encode({valid_text.data() + span.begin, span.end - span.begin}, &piece_ids);
      if (!status.ok()) return internal_error("SentencePiece: {}", status.ToString());
    } catch (const std::exception& e) {
      return internal_error("SentencePiece: {}", e.what());
    }
    ids->insert(ids->end(), piece_ids.begin(), piece_ids.end());
  }
  workspace->symbols.clear();
  return {};
}

int32_t SentencePieceModel::bos_id() const {
  return processor_->bos_id();
}
int32_t SentencePieceModel::eos_id() const {
  return processor_->eos_id();
}
int32_t SentencePieceModel::unk_id() const {
  return processor_->unk_id();
}

}  // namespace atom
