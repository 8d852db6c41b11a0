// InputTensors, OutputTensors: the tensors of KServe's messages as values by name, in either of their two
// writings (typed contents, raw bytes). They check datatype, shape and size and know nothing of prompts. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "kserve/v2.pb.h"

namespace baton::router::kserve {

class InputTensors {
 public:
  // `request` outlives it. INVALID_ARGUMENT if two inputs have one name, or the raw contents are not one for
  // each.
  static absl::StatusOr<InputTensors> Of(const inference::ModelInferRequest& request);

  // Absent, or its one value. INVALID_ARGUMENT names the tensor: another datatype, not one value, cut short.
  absl::StatusOr<std::optional<std::string>> Text(std::string_view name);  // BYTES
  absl::StatusOr<std::optional<bool>> Flag(std::string_view name);         // BOOL
  absl::StatusOr<std::optional<double>> Number(std::string_view name);     // floating or whole
  absl::StatusOr<std::optional<int64_t>> Whole(std::string_view name);     // signed or not
  // Absent: none. Of any number of values.
  absl::StatusOr<std::vector<std::string>> Texts(std::string_view name);
  absl::StatusOr<std::vector<int64_t>> Wholes(std::string_view name);

  // INVALID_ARGUMENT names an input that nobody asked for.
  absl::Status AllAsked() const;

 private:
  explicit InputTensors(const inference::ModelInferRequest& request) : request_(request) {}

  // Index of the input, or -1.
  int Find(std::string_view name);
  // Values that the input's shape tells.
  absl::StatusOr<int64_t> Count(int index) const;
  absl::StatusOr<std::vector<std::string>> ReadTexts(int index) const;
  absl::StatusOr<std::vector<double>> ReadNumbers(int index) const;
  absl::StatusOr<std::vector<int64_t>> ReadWholes(int index) const;
  absl::StatusOr<std::vector<bool>> ReadFlags(int index) const;
  absl::Status Wrong(int index, std::string_view why) const;

  const inference::ModelInferRequest& request_;
  absl::flat_hash_set<int> asked_;
};

// Writes the tensors of one response, raw or typed as the request was.
class OutputTensors {
 public:
  // `response` outlives it.
  OutputTensors(bool raw, inference::ModelInferResponse& response) : raw_(raw), response_(response) {}

  void AddText(std::string_view name, std::string_view text);                 // BYTES [1]
  void AddNumber(std::string_view name, float number);                        // FP32 [1]
  void AddCount(std::string_view name, uint32_t count);                       // UINT32 [1]
  void AddTokens(std::string_view name, const std::vector<int32_t>& tokens);  // INT32 [1, n]

 private:
  inference::ModelInferResponse::InferOutputTensor& Add(std::string_view name, const char* datatype);

  const bool raw_;
  inference::ModelInferResponse& response_;
};

}  // namespace baton::router::kserve
