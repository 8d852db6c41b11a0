/* baton_text: the Rust libraries behind text (tokenizers, minijinja, llguidance) as plain C.
 *
 * Every call that can fail returns a baton_text_code; on anything but BATON_TEXT_OK, *error holds a UTF-8
 * message and no other output is set. Panics end here as BATON_TEXT_INTERNAL; nothing unwinds into the
 * caller. Handles but matchers are immutable after creation and may be used from many threads at once; a
 * handle is freed once, after its last use. Buffers that come out belong to the caller, who hands them back
 * to the matching free function. */
#ifndef BATON_TEXT_H_
#define BATON_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BATON_TEXT_OK = 0,
  BATON_TEXT_INVALID = 1,  /* the input is at fault */
  BATON_TEXT_INTERNAL = 2, /* a defect on this side of the border */
  BATON_TEXT_TOO_LONG = 3, /* more came out than the caller allows */
  BATON_TEXT_STOPPED = 4,  /* the caller no longer wants it */
} baton_text_code;

/* UTF-8 text or raw bytes, not terminated by a zero. data is not null, also when size is 0. */
typedef struct {
  uint8_t* data;
  size_t size;
} baton_text_bytes;

typedef struct {
  uint32_t* data;
  size_t size;
} baton_text_ids;

void baton_text_bytes_free(baton_text_bytes bytes);
void baton_text_ids_free(baton_text_ids ids);

/* ---- Tokenizer ---- */

typedef struct baton_tokenizer baton_tokenizer;

/* json: the whole content of a tokenizer.json. Truncation and padding that it asks for are switched off.
   config: that of a tokenizer_config.json, whose tokens are added as transformers does; size 0: none. */
int32_t baton_tokenizer_new(const uint8_t* json, size_t size, const uint8_t* config, size_t config_size,
                            baton_tokenizer** out, baton_text_bytes* error);
void baton_tokenizer_free(baton_tokenizer* tokenizer);

/* mark: 0, or a character (Unicode scalar value) that is taken out of the text before it is encoded; no added
 * token is recognised across a place where it stood (baton_tokenizer_mark_controls).
 * More than max_tokens is BATON_TEXT_TOO_LONG, found as soon as there are so many. wanted, if not null, is
 * called with asked before the work and now and then during it; 0 ends it as BATON_TEXT_STOPPED. */
int32_t baton_tokenizer_encode(const baton_tokenizer* tokenizer, const uint8_t* text, size_t size,
                               int32_t add_special_tokens, uint32_t mark, size_t max_tokens,
                               int32_t (*wanted)(const void*), const void* asked, baton_text_ids* out,
                               baton_text_bytes* error);

/* Control tokens: added tokens that are not text of their own (letters, white space). */
typedef struct {
  size_t tokens; /* occurrences in the text that do not overlap */
  size_t marks;  /* that keep them from being recognised; also where only the text's end begins a token */
} baton_text_controls;

/* kept: ids in ascending order that are not looked for. */
int32_t baton_tokenizer_find_controls(const baton_tokenizer* tokenizer, const uint8_t* text, size_t size,
                                      const uint32_t* kept, size_t kept_size, baton_text_controls* out,
                                      baton_text_bytes* error);

/* The text with the character `mark` inside each such occurrence. */
int32_t baton_tokenizer_mark_controls(const baton_tokenizer* tokenizer, const uint8_t* text, size_t size,
                                      const uint32_t* kept, size_t kept_size, uint32_t mark,
                                      baton_text_bytes* out, baton_text_bytes* error);

/* The text without its marks, also without those that became JSON escapes (backslash, u, four digits). */
int32_t baton_text_unmark(const uint8_t* text, size_t size, uint32_t mark, baton_text_bytes* out,
                          baton_text_bytes* error);

/* The library's own decoding of the whole run. Ids that the vocabulary lacks are skipped. */
int32_t baton_tokenizer_decode(const baton_tokenizer* tokenizer, const uint32_t* ids, size_t size,
                               int32_t keep_special, baton_text_bytes* out, baton_text_bytes* error);

/* How the text of a run follows from the text of its tokens. */
typedef enum {
  /* Only the library knows: decode the run. */
  BATON_TEXT_JOIN_OPAQUE = 0,
  /* Concatenate the tokens' bytes; every maximal ill-formed part becomes U+FFFD. */
  BATON_TEXT_JOIN_BYTES = 1,
  /* As above, but the first token's text is the library's decoding of that token alone. */
  BATON_TEXT_JOIN_BYTES_FIRST_DECODED = 2,
} baton_text_join;

enum {
  BATON_TEXT_TOKEN_PRESENT = 1, /* the vocabulary has this id */
  BATON_TEXT_TOKEN_SPECIAL = 2, /* decoding leaves it out unless asked to keep it */
  BATON_TEXT_TOKEN_CONTROL = 4, /* a control token (baton_text_controls) */
};

/* The vocabulary as one table: token i stands for bytes[ends[i - 1] .. ends[i]) (from 0 for i = 0). ends and
 * flags have one entry per id from 0 to the largest one. */
typedef struct {
  baton_text_bytes bytes;
  baton_text_ids ends;
  baton_text_bytes flags;
  int32_t join;          /* baton_text_join */
  uint32_t strip_spaces; /* as many spaces at most are taken from the start of the joined text */
  int32_t verbatim;      /* 1: no normalizer changes a text before it is cut into tokens */
} baton_text_vocabulary;

int32_t baton_tokenizer_vocabulary(const baton_tokenizer* tokenizer, baton_text_vocabulary* out,
                                   baton_text_bytes* error);

/* ---- Chat template ---- */

typedef struct baton_template baton_template;

int32_t baton_template_new(const uint8_t* source, size_t size, baton_template** out, baton_text_bytes* error);
void baton_template_free(baton_template* chat_template);

/* variables: a JSON object. now: seconds since 1970, what strftime_now formats in local time. More than
 * max_bytes is BATON_TEXT_TOO_LONG, found as soon as there are so many. */
int32_t baton_template_render(const baton_template* chat_template, const uint8_t* variables, size_t size,
                              int64_t now, size_t max_bytes, baton_text_bytes* out, baton_text_bytes* error);

/* ---- Grammars ---- */

/* The tokens of a tokenizer as grammars see them: control tokens are no text. Made once; takes some 100 bytes
 * per token. BATON_TEXT_INVALID for a tokenizer whose text is more than its tokens' text in a row. */
typedef struct baton_grammar_vocabulary baton_grammar_vocabulary;

int32_t baton_grammar_vocabulary_new(const baton_tokenizer* tokenizer, baton_grammar_vocabulary** out,
                                     baton_text_bytes* error);
void baton_grammar_vocabulary_free(baton_grammar_vocabulary* vocabulary);

/* Where an answer stands in a grammar. One thread at a time. */
typedef struct baton_matcher baton_matcher;

/* grammar: in llguidance's dialect of Lark, not nested so deep that recursion could exhaust the stack. The
 * matcher keeps what it needs of the vocabulary. */
int32_t baton_matcher_new(const baton_grammar_vocabulary* vocabulary, const uint8_t* grammar, size_t size,
                          baton_matcher** out, baton_text_bytes* error);
/* Another one that stands at the same place. */
int32_t baton_matcher_fork(const baton_matcher* matcher, baton_matcher** out, baton_text_bytes* error);
void baton_matcher_free(baton_matcher* matcher);
/* The next token. BATON_TEXT_INVALID if the mask does not allow it; the matcher is of no use then. */
int32_t baton_matcher_push(baton_matcher* matcher, uint32_t token, baton_text_bytes* error);
/* Sets bit i % 32 of words[i / 32] if the next token may be i, clears all others, and sets *accepts to 1 if
 * the answer may end here, else 0. BATON_TEXT_INVALID if that takes more than it may. */
int32_t baton_matcher_mask(baton_matcher* matcher, uint32_t* words, size_t size, int32_t* accepts,
                           baton_text_bytes* error);
/* The text with which whatever may follow begins, up to the first control token; often empty, and not always
 * of whole characters. */
int32_t baton_matcher_forced(const baton_matcher* matcher, baton_text_bytes* out, baton_text_bytes* error);

#ifdef __cplusplus
}
#endif

#endif /* BATON_TEXT_H_ */
