// Prints what another precision of a model costs in llama.cpp, as JSON: the mean and the 99th percentile of
// the KL divergence of the next token's distribution from that of a first file, in nats, and the share of
// positions whose likeliest token is another one, after each token but the last of a text that both read at
// once. KV is float32, without flash attention. engines.py compiles it against the llama.cpp of
// scripts/peers.
//
//   llama_divergence FIRST.gguf OTHER.gguf THREADS < IDS
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <span>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "llama_divergence: %s\n", what);
  std::exit(1);
}

// A model that has read a text; never freed, for the program ends soon.
llama_context* Read(const char* file, const std::vector<llama_token>& ids, int threads) {
  llama_model* const model = llama_model_load_from_file(file, llama_model_default_params());
  if (model == nullptr) Fail("a model does not load");
  const auto count = static_cast<uint32_t>(ids.size());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = count;
  params.n_threads = params.n_threads_batch = threads;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* const context = llama_init_from_model(model, params);
  if (context == nullptr) Fail("no context");
  llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
  for (const llama_token id : ids) {
    const int32_t i = batch.n_tokens++;
    batch.token[i] = id;
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) Fail("the text can't be read");
  llama_batch_free(batch);
  return context;
}

// The logarithm of the sum of exponentials.
double Normalizer(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) Fail("takes two files and a number of threads");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const std::vector<llama_token> ids{std::istream_iterator<llama_token>(std::cin), {}};
  if (ids.size() < 2) Fail("takes ids in standard input");
  const int threads = std::atoi(argv[3]);
  llama_context* const first = Read(argv[1], ids, threads);
  llama_context* const other = Read(argv[2], ids, threads);
  const auto vocabulary =
      static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(first))));
  std::vector<double> divergences;
  int changed = 0;
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(ids.size()); ++i) {
    const std::span<const float> p(llama_get_logits_ith(first, i), vocabulary);
    const std::span<const float> q(llama_get_logits_ith(other, i), vocabulary);
    const double of_p = Normalizer(p), of_q = Normalizer(q);
    double divergence = 0;
    for (size_t k = 0; k < vocabulary; ++k) {
      divergence += std::exp(p[k] - of_p) * ((p[k] - of_p) - (q[k] - of_q));
    }
    divergences.push_back(divergence);
    changed += std::ranges::max_element(p) - p.begin() != std::ranges::max_element(q) - q.begin();
  }
  double mean = 0;
  const auto count = static_cast<double>(divergences.size());
  for (const double divergence : divergences) mean += divergence / count;
  std::ranges::sort(divergences);
  std::printf("{\"mean\": %g, \"p99\": %g, \"other\": %g}\n", mean,
              divergences[static_cast<size_t>(0.99 * (count - 1))], changed / count);
}
