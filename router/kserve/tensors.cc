#include "router/kserve/tensors.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::router::kserve {
namespace {

using inference::InferTensorContents;
using inference::ModelInferRequest;

// More than a request's bytes can hold.
constexpr int64_t kMaxValues = int64_t{1} << 32;

// `count` little-endian values of type From; nothing if the bytes are not as many.
template <typename From, typename To>
std::optional<std::vector<To>> FromRaw(std::string_view bytes, int64_t count) {
  if (static_cast<int64_t>(bytes.size()) != count * static_cast<int64_t>(sizeof(From))) return std::nullopt;
  std::vector<To> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = static_cast<To>(value);
  }
  return values;
}

template <typename To, typename Values>
std::optional<std::vector<To>> FromTyped(const Values& values, int64_t count) {
  if (values.size() != count) return std::nullopt;
  return std::vector<To>(values.begin(), values.end());
}

// Elements with their lengths before them.
std::optional<std::vector<std::string>> TextsFromRaw(std::string_view bytes, int64_t count) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    uint32_t size = 0;
    if (bytes.size() < sizeof(size)) return std::nullopt;
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    if (bytes.size() < size) return std::nullopt;
    texts.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (static_cast<int64_t>(texts.size()) != count) return std::nullopt;
  return texts;
}

}  // namespace

absl::StatusOr<InputTensors> InputTensors::Of(const ModelInferRequest& request) {
  absl::flat_hash_set<std::string_view> names;
  for (const auto& input : request.inputs()) {
    if (names.insert(input.name()).second) continue;
    return absl::InvalidArgumentError(fmt::format("two inputs are named {}", Quoted(input.name())));
  }
  if (request.raw_input_contents_size() > 0 && request.raw_input_contents_size() != request.inputs_size()) {
    return absl::InvalidArgumentError(fmt::format("raw_input_contents has {} entries for {} inputs",
                                                  request.raw_input_contents_size(), request.inputs_size()));
  }
  return InputTensors(request);
}

int InputTensors::Find(std::string_view name) {
  for (int i = 0; i < request_.inputs_size(); ++i) {
    if (request_.inputs(i).name() != name) continue;
    asked_.insert(i);
    return i;
  }
  return -1;
}

absl::Status InputTensors::Wrong(int index, std::string_view why) const {
  return absl::InvalidArgumentError(fmt::format("input {}: {}", Quoted(request_.inputs(index).name()), why));
}

absl::StatusOr<int64_t> InputTensors::Count(int index) const {
  int64_t count = 1;
  for (const int64_t size : request_.inputs(index).shape()) {
    if (size < 0 || (size > 0 && count > kMaxValues / size)) return Wrong(index, "no such shape");
    count *= size;
  }
  return count;
}

absl::StatusOr<std::vector<std::string>> InputTensors::ReadTexts(int index) const {
  const auto& input = request_.inputs(index);
  if (input.datatype() != "BYTES")
    return Wrong(index, fmt::format("BYTES is needed, not {}", Quoted(input.datatype())));
  BATON_ASSIGN_OR_RETURN(const int64_t count, Count(index));
  auto texts = request_.raw_input_contents_size() > 0
                   ? TextsFromRaw(request_.raw_input_contents(index), count)
                   : FromTyped<std::string>(input.contents().bytes_contents(), count);
  if (!texts.has_value()) return Wrong(index, "its contents are not as many as its shape says");
  return *std::move(texts);
}

absl::StatusOr<std::vector<bool>> InputTensors::ReadFlags(int index) const {
  const auto& input = request_.inputs(index);
  if (input.datatype() != "BOOL")
    return Wrong(index, fmt::format("BOOL is needed, not {}", Quoted(input.datatype())));
  BATON_ASSIGN_OR_RETURN(const int64_t count, Count(index));
  auto flags = request_.raw_input_contents_size() > 0
                   ? FromRaw<uint8_t, bool>(request_.raw_input_contents(index), count)
                   : FromTyped<bool>(input.contents().bool_contents(), count);
  if (!flags.has_value()) return Wrong(index, "its contents are not as many as its shape says");
  return *std::move(flags);
}

absl::StatusOr<std::vector<int64_t>> InputTensors::ReadWholes(int index) const {
  const auto& input = request_.inputs(index);
  const InferTensorContents& typed = input.contents();
  const bool raw = request_.raw_input_contents_size() > 0;
  const std::string_view bytes = raw ? request_.raw_input_contents(index) : std::string_view();
  BATON_ASSIGN_OR_RETURN(const int64_t n, Count(index));
  const std::string& type = input.datatype();
  std::optional<std::vector<int64_t>> values;
  if (type == "INT64") {
    values = raw ? FromRaw<int64_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.int64_contents(), n);
  } else if (type == "INT32") {
    values = raw ? FromRaw<int32_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.int_contents(), n);
  } else if (type == "INT16") {
    values = raw ? FromRaw<int16_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.int_contents(), n);
  } else if (type == "INT8") {
    values = raw ? FromRaw<int8_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.int_contents(), n);
  } else if (type == "UINT64") {
    values = raw ? FromRaw<uint64_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.uint64_contents(), n);
  } else if (type == "UINT32") {
    values = raw ? FromRaw<uint32_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.uint_contents(), n);
  } else if (type == "UINT16") {
    values = raw ? FromRaw<uint16_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.uint_contents(), n);
  } else if (type == "UINT8") {
    values = raw ? FromRaw<uint8_t, int64_t>(bytes, n) : FromTyped<int64_t>(typed.uint_contents(), n);
  } else {
    return Wrong(index, fmt::format("a whole number is needed, not {}", Quoted(type)));
  }
  if (!values.has_value()) return Wrong(index, "its contents are not as many as its shape says");
  return *std::move(values);
}

absl::StatusOr<std::vector<double>> InputTensors::ReadNumbers(int index) const {
  const auto& input = request_.inputs(index);
  const bool raw = request_.raw_input_contents_size() > 0;
  const std::string_view bytes = raw ? request_.raw_input_contents(index) : std::string_view();
  std::optional<std::vector<double>> values;
  if (input.datatype() == "FP32") {
    BATON_ASSIGN_OR_RETURN(const int64_t n, Count(index));
    values = raw ? FromRaw<float, double>(bytes, n) : FromTyped<double>(input.contents().fp32_contents(), n);
  } else if (input.datatype() == "FP64") {
    BATON_ASSIGN_OR_RETURN(const int64_t n, Count(index));
    values = raw ? FromRaw<double, double>(bytes, n) : FromTyped<double>(input.contents().fp64_contents(), n);
  } else {
    BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> wholes, ReadWholes(index));
    return std::vector<double>(wholes.begin(), wholes.end());
  }
  if (!values.has_value()) return Wrong(index, "its contents are not as many as its shape says");
  return *std::move(values);
}

absl::StatusOr<std::optional<std::string>> InputTensors::Text(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(std::vector<std::string> values, ReadTexts(index));
  if (values.size() != 1) return Wrong(index, "one value is needed");
  return std::move(values.front());
}

absl::StatusOr<std::optional<bool>> InputTensors::Flag(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const std::vector<bool> values, ReadFlags(index));
  if (values.size() != 1) return Wrong(index, "one value is needed");
  return values.front();
}

absl::StatusOr<std::optional<double>> InputTensors::Number(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const std::vector<double> values, ReadNumbers(index));
  if (values.size() != 1) return Wrong(index, "one value is needed");
  return values.front();
}

absl::StatusOr<std::optional<int64_t>> InputTensors::Whole(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ReadWholes(index));
  if (values.size() != 1) return Wrong(index, "one value is needed");
  return values.front();
}

absl::StatusOr<std::vector<std::string>> InputTensors::Texts(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::vector<std::string>();
  return ReadTexts(index);
}

absl::StatusOr<std::vector<int64_t>> InputTensors::Wholes(std::string_view name) {
  const int index = Find(name);
  if (index < 0) return std::vector<int64_t>();
  return ReadWholes(index);
}

absl::Status InputTensors::AllAsked() const {
  for (int i = 0; i < request_.inputs_size(); ++i) {
    if (!asked_.contains(i)) return Wrong(i, "not served here; ModelMetadata lists those that are");
  }
  return absl::OkStatus();
}

inference::ModelInferResponse::InferOutputTensor& OutputTensors::Add(std::string_view name,
                                                                     const char* datatype) {
  auto& output = *response_.add_outputs();
  output.set_name(std::string(name));
  output.set_datatype(datatype);
  return output;
}

void OutputTensors::AddText(std::string_view name, std::string_view text) {
  auto& output = Add(name, "BYTES");
  output.add_shape(1);
  if (!raw_) {
    output.mutable_contents()->add_bytes_contents(std::string(text));
    return;
  }
  const auto size = static_cast<uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  response_.add_raw_output_contents(bytes.append(text));
}

void OutputTensors::AddNumber(std::string_view name, float number) {
  auto& output = Add(name, "FP32");
  output.add_shape(1);
  if (raw_) {
    response_.add_raw_output_contents(&number, sizeof(number));
  } else {
    output.mutable_contents()->add_fp32_contents(number);
  }
}

void OutputTensors::AddCount(std::string_view name, uint32_t count) {
  auto& output = Add(name, "UINT32");
  output.add_shape(1);
  if (raw_) {
    response_.add_raw_output_contents(&count, sizeof(count));
  } else {
    output.mutable_contents()->add_uint_contents(count);
  }
}

void OutputTensors::AddTokens(std::string_view name, const std::vector<int32_t>& tokens) {
  auto& output = Add(name, "INT32");
  output.add_shape(1);
  output.add_shape(static_cast<int64_t>(tokens.size()));
  if (raw_) {
    response_.add_raw_output_contents(tokens.data(), tokens.size() * sizeof(int32_t));
  } else {
    output.mutable_contents()->mutable_int_contents()->Add(tokens.begin(), tokens.end());
  }
}

}  // namespace baton::router::kserve
