// TokenizerDigest: what a tokenizer does, as 32 bytes, for those who have to agree on it: a router, which
// makes ids of text, and the workers, which make text of ids. Two files that spell one tokenizer in different
// ways, a GGUF file and the folder that it was made from, have one digest. Pure function, any thread.
#pragma once

#include <cstddef>
#include <string>

#include "text/tokenizer.h"

namespace baton::text {

// Tokens of the vocabulary whose texts are encoded, at most; of larger vocabularies those at equal distances.
inline constexpr size_t kSampledTokens = 16384;

// SHA-256 (32 bytes) over the size of the vocabulary, each token's bytes and whether it is a control token,
// and the ids of fixed texts (scripts, digits, white space, contractions, characters that normalizers
// change), of each control token's text, and of the texts of sampled tokens, alone and in pairs. The fixed
// texts are encoded with special tokens as well.
//
// Left out is what files say of one tokenizer in different ways: whether a control token is special
// (converters to GGUF make special what looks so), and how white space beside a control token is taken. A
// merge or a rule of the normalizer that none of the texts meets goes unseen.
//
// Takes some 10 ms for 16,000 tokens and 100 ms for 128,000. If another build is to compute another digest,
// it is told in another field of WorkerInfo: a golden value in the tests says when.
std::string TokenizerDigest(const Tokenizer& tokenizer);

}  // namespace baton::text
