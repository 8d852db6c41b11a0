//! Grammars that answers obey: llguidance over a tokenizer's vocabulary, within bounds. What comes in is the work of strangers:
//! its size and nesting are the caller's to bound, the work on it is bounded here.

use std::sync::Arc;

use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher as Automaton, ParserFactory};

use crate::tokenizer::{Join, Tokenizer, CONTROL, PRESENT};

/// For a chain of as many rules or references as fit into the longest grammar that the caller lets in (64 KiB). What is not used
/// takes no memory.
const STACK: usize = 256 << 20;

/// A vocabulary as a trie over bytes: made once per tokenizer.
pub struct Vocabulary {
    factory: ParserFactory,
    /// Number of token ids. The trie has one more: an end that no tokenizer has, so that an answer's real end tokens are the
    /// caller's to allow.
    tokens: usize,
}

impl Vocabulary {
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, String> {
        let table = tokenizer.table()?;
        if table.join == Join::Opaque {
            return Err("answers can't be constrained: the text of this tokenizer's tokens is not that of each, joined".to_string());
        }
        const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
        let mut words = Vec::with_capacity(table.ends.len() + 1);
        let mut begin = 0;
        for (&end, &flags) in table.ends.iter().zip(&table.flags) {
            let bytes = &table.bytes[begin..end as usize];
            begin = end as usize;
            let mut word = vec![];
            if flags & CONTROL != 0 {
                word.push(MARKER); // text of the grammar never becomes one
                word.extend_from_slice(bytes);
            } else if flags & PRESENT != 0 && bytes.first() != Some(&MARKER) {
                word.extend_from_slice(bytes); // the marker's byte is in no UTF-8
            }
            words.push(word);
        }
        let tokens = words.len();
        words.push([&[MARKER], b"<|end of the answer|>".as_slice()].concat());
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, tokens as u32), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let none = InferenceCapabilities {
            ff_tokens: false,
            conditional_ff_tokens: false,
            backtrack: false,
            fork: false,
        };
        let mut factory =
            ParserFactory::new(&env, none, &SlicedBiasComputer::json_slices()).map_err(|e| e.to_string())?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_items_in_row: 2_000,
            initial_lexer_fuel: 1_000_000, // about 20 ms
            step_lexer_fuel: 200_000,      // about 15 ms
            step_max_items: 50_000,        // about 3 ms
            max_lexer_states: 25_000,      // up to 2 KB each
            max_grammar_size: 200_000,
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(Vocabulary { factory, tokens })
    }

    /// The grammar's text is in llguidance's dialect of Lark. The library follows rules and references recursively, so the work
    /// has a thread with a stack of its own.
    pub fn compile(&self, grammar: &[u8]) -> Result<Matcher, String> {
        let grammar = std::str::from_utf8(grammar).map_err(|_| "the grammar is not UTF-8".to_string())?;
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || self.compile_here(grammar))
                .map_err(|e| format!("no thread for the grammar: {e}"))?
                .join()
                .unwrap_or_else(|_| Err("the grammar library fails on it".to_string()))
        })
    }

    fn compile_here(&self, grammar: &str) -> Result<Matcher, String> {
        let parser = self
            .factory
            .create_parser(TopLevelGrammar::from_lark(grammar.to_string()))
            .map_err(|e| told(&format!("{e:#}")))?;
        let mut matcher =
            Matcher { automaton: Automaton::new(Ok(parser)), tokens: self.tokens, masked: false };
        // Refuses a grammar that is too large for its first step, or that no text of these tokens begins.
        let mut first = vec![0; self.tokens.div_ceil(32)];
        let accepts = matcher.mask(&mut first)?;
        if !accepts && first.iter().all(|&word| word == 0) {
            return Err("no text of this model's tokens obeys it".to_string());
        }
        Ok(matcher)
    }
}

/// Where an answer stands in a grammar: a function of the grammar and of the tokens so far.
pub struct Matcher {
    automaton: Automaton,
    tokens: usize,
    /// A mask was made since the last token.
    masked: bool,
}

impl Matcher {
    /// Independent of the original.
    pub fn fork(&self) -> Self {
        Matcher { automaton: self.automaton.deep_clone(), tokens: self.tokens, masked: self.masked }
    }

    pub fn push(&mut self, token: u32) -> Result<(), String> {
        if self.ended() {
            return Err("the answer was complete before this token".to_string());
        }
        // Only masks bring the library new fuel. Without one for each token, a text that is read again would run out of it where
        // the answer did not.
        if !self.masked {
            self.automaton.compute_mask().map_err(|e| told(&e.to_string()))?;
        }
        self.masked = false;
        let allowed = (token as usize) < self.tokens
            && self.automaton.validate_tokens(&[token]).map_err(|e| told(&e.to_string()))? == 1;
        if !allowed {
            // Without fuel the library takes no token, and only a mask says why.
            self.automaton.compute_mask().map_err(|e| told(&e.to_string()))?;
            return Err(format!("token {token} does not obey the grammar"));
        }
        self.automaton.consume_token(token).map_err(|e| told(&e.to_string()))
    }

    /// Bit i of word i / 32: the next token may be i. Returns whether the answer may end instead.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<bool, String> {
        words.fill(0);
        if self.ended() {
            return Ok(true);
        }
        let mask = self.automaton.compute_mask().map_err(|e| told(&e.to_string()))?;
        self.masked = true;
        let accepts = mask.is_allowed(self.tokens as u32);
        let most = words.len().min(self.tokens.div_ceil(32));
        words[..most].copy_from_slice(&mask.as_slice()[..most]);
        if let (Some(last), rest) = (words.get_mut(self.tokens / 32), self.tokens % 32) {
            *last &= (1u32 << rest) - 1; // the end of the trie is no token
        }
        Ok(accepts)
    }

    /// The text with which whatever follows begins, up to the first control token. It is asked of a copy: the library keeps what it
    /// finds out about forced text, and masks are to be the same with and without the question.
    pub fn forced(&self) -> Vec<u8> {
        const LONGEST: usize = 1024;
        if self.ended() {
            return vec![];
        }
        let mut bytes = self.automaton.deep_clone().compute_ff_bytes();
        let end = bytes.iter().position(|&byte| byte == TokTrie::SPECIAL_TOKEN_MARKER);
        bytes.truncate(end.unwrap_or(LONGEST).min(LONGEST));
        bytes
    }

    /// Nothing may follow.
    fn ended(&self) -> bool {
        matches!(
            self.automaton.stop_reason(),
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence
        )
    }
}

const TOO_MUCH: &str =
    "it takes more work than is allowed: fewer nested or counted repetitions, or a pattern without a maxLength, take less";
/// The library advises an option that is not for clients.
const OVERLAPS: &str =
    "oneOf: its branches may overlap, and only one may hold; use anyOf, or give each branch a required \
                        property with a const of its own";

/// The library's complaint in one line of bounded length, without what it adds for its own developers.
fn told(error: &str) -> String {
    const LONGEST: usize = 400;
    let error =
        error.split("<state>").next().unwrap_or(error).split("<non-verbose/>").next().unwrap_or(error).trim();
    match error {
        "NoExtensionBias" => return "no token of this model continues it here".to_string(),
        "LexerTooComplex" | "ParserTooComplex" => return TOO_MUCH.to_string(),
        _ if error.starts_with("lexer error: too many") || error.starts_with("parser error: Too many") => {
            return TOO_MUCH.to_string()
        }
        _ if error.contains("Enable 'coerce_one_of' option") => return OVERLAPS.to_string(),
        _ => {}
    }
    if let Some(panic) = error.strip_prefix("panic: ") {
        let cause = panic.split("<backtrace>").next().unwrap_or(panic).trim();
        return format!("the grammar library fails on it: {cause}");
    }
    let mut line = error.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
        line.truncate(end);
        line.push_str("...");
    }
    line
}
