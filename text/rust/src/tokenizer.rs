//! A tokenizer.json, and the table of what each of its tokens stands for.

use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::Value;
use tokenizers::pre_tokenizers::split::Split;
use tokenizers::utils::parallelism::set_parallelism;
use tokenizers::{
    AddedToken, Encoding, Model, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
    SplitDelimiterBehavior,
};

use crate::controls::{self, Controls, Found};
use crate::growth::check_growth;

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    controls: Controls,
}

/// Adds what transformers adds from a tokenizer_config.json: the entries of added_tokens_decoder whose text is no added token
/// yet, in the order of their ids; and the special tokens that it names, as far as the vocabulary has their text. (A special
/// token that the vocabulary lacks would get an id for which models have no embedding.)
fn add_tokens(inner: &mut tokenizers::Tokenizer, config: &[u8]) -> Result<(), String> {
    let config: Value = serde_json::from_slice(config).map_err(|e| e.to_string())?;
    let mut listed = Vec::new();
    for (id, entry) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let id: u32 = id.parse().map_err(|_| format!("added_tokens_decoder: \"{id}\" is no token id"))?;
        let content = entry["content"].as_str().ok_or(format!("added_tokens_decoder: {id} has no content"))?;
        let flag = |name: &str, default| entry[name].as_bool().unwrap_or(default);
        let special = flag("special", false);
        let token = AddedToken::from(content, special)
            .single_word(flag("single_word", false))
            .lstrip(flag("lstrip", false))
            .rstrip(flag("rstrip", false))
            .normalized(flag("normalized", !special));
        listed.push((id, token));
    }
    listed.sort_by_key(|(id, _)| *id);
    let mut wanted: Vec<AddedToken> = listed.into_iter().map(|(_, token)| token).collect();
    let lists = ["additional_special_tokens", "extra_special_tokens"].map(|name| &config[name]);
    let listed = lists.iter().flat_map(|list| list.as_array().into_iter().flatten());
    let by_name = lists[1].as_object().into_iter().flatten().map(|(_, value)| value);
    for entry in SPECIAL_TOKENS.map(|name| &config[name]).into_iter().chain(listed).chain(by_name) {
        let Some(content) = entry.as_str().or(entry["content"].as_str()) else { continue };
        if let Some(token) = wanted.iter_mut().find(|token| token.content == content) {
            token.special = true;
        } else if inner.token_to_id(content).is_some() {
            wanted.push(AddedToken::from(content, true));
        }
    }
    wanted.retain(|token| !inner.get_added_vocabulary().get_vocab().contains_key(&token.content));
    inner.add_tokens(wanted).map_err(|e| e.to_string())?;
    Ok(())
}

const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Limits of an encoding.
pub struct Bounds<'a> {
    pub max_tokens: usize,
    /// Asked now and then: false ends the work.
    pub wanted: &'a dyn Fn() -> bool,
}

pub enum Failure {
    Invalid(String),
    TooLong,
    Stopped,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Invalid(message)
    }
}

/// Words between two questions whether the result is still wanted: some 100 us of work.
const WORDS_BETWEEN_QUESTIONS: usize = 256;

/// How the text of a run of tokens follows from the text of each.
#[derive(Clone, Copy, PartialEq)]
pub enum Join {
    Opaque,
    Bytes,
    BytesFirstDecoded,
}

pub struct Table {
    pub bytes: Vec<u8>,
    pub ends: Vec<u32>,
    pub flags: Vec<u8>,
    pub join: Join,
    pub strip_spaces: u32,
    pub verbatim: bool,
}

pub const PRESENT: u8 = 1;
const SPECIAL: u8 = 2;
pub const CONTROL: u8 = 4;

/// The table has an entry per id, so one absurd id would take all memory. The largest vocabularies have 262,144.
const MAX_VOCABULARY: usize = 1 << 24;

impl Tokenizer {
    /// `config`: a tokenizer_config.json, which may have tokens that the tokenizer.json lacks; empty: none.
    pub fn from_json(json: &[u8], config: &[u8]) -> Result<Self, String> {
        // Requests bring the parallelism; a thread pool under each Encode would only take cores from the engine.
        set_parallelism(false);
        // The library is strict about JSON in some places and panics in others, so syntax is checked first; whatever it
        // still panics at is a damaged file too.
        let unreadable = "not a tokenizer that the library can read";
        catch_unwind(|| check_growth(json)).unwrap_or_else(|_| Err(unreadable.to_string()))?;
        let mut inner = catch_unwind(|| tokenizers::Tokenizer::from_bytes(json))
            .unwrap_or_else(|_| Err(unreadable.into()))
            .map_err(|e| e.to_string())?;
        // A tokenizer.json saved during training may ask for truncation: a prompt is never cut in silence.
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        inner.with_padding(None);
        if !config.is_empty() {
            add_tokens(&mut inner, config).map_err(|e| format!("tokenizer_config.json: {e}"))?;
        }
        let controls = Controls::new(inner.get_added_vocabulary(), inner.get_normalizer())?;
        let tokenizer = Tokenizer { inner, controls };
        tokenizer.check_post_processor()?;
        Ok(tokenizer)
    }

    /// A model's own ids come from its vocabulary. The post-processor's are numbers that the file states once more, and the
    /// library puts them into a prompt unseen: one that no token has would be an embedding that the model lacks.
    fn check_post_processor(&self) -> Result<(), String> {
        let processor = serde_json::to_value(self.inner.get_post_processor()).map_err(|e| e.to_string())?;
        for (name, id) in added_ids(&processor) {
            let known = u32::try_from(id).ok().and_then(|id| self.inner.id_to_token(id));
            if known.is_none() {
                return Err(format!("post_processor adds {name} as token id {id}, and no token has that id"));
            }
        }
        Ok(())
    }

    /// The same ids as the library's encode_fast. The library makes all words of a text, each with its alignment, before it
    /// looks at the first one: hundreds of bytes of memory per byte of text, and no way to end early. Here a word is made,
    /// turned into ids and forgotten, where the pre-tokenizer allows that (`splits`).
    ///
    /// With a `mark`, the ids of the text without its marks, in which no added token reaches across the place of one: what
    /// the library's would be if it did not know the token there.
    pub fn encode(
        &self,
        text: &[u8],
        add_special_tokens: bool,
        mark: Option<char>,
        bounds: &Bounds,
    ) -> Result<Vec<u32>, Failure> {
        let text = utf8(text)?;
        if !(bounds.wanted)() {
            return Err(Failure::Stopped);
        }
        let mut parts = match mark {
            Some(mark) => self.parts_of_marked(text, mark)?,
            None => {
                self.inner.get_added_vocabulary().extract_and_normalize(self.inner.get_normalizer(), text)
            }
        };
        let splits = self.splits();
        if let (None, Some(pre_tokenizer)) = (&splits, self.inner.get_pre_tokenizer()) {
            pre_tokenizer.pre_tokenize(&mut parts).map_err(|e| e.to_string())?;
        }
        let mut ids = vec![];
        let mut words = 0;
        let mut alphabet = String::new();
        for (part, _, tokens) in parts.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id)); // an added token
                continue;
            }
            each_word(splits.as_deref().unwrap_or(&[]), part, &mut |word| {
                words += 1;
                if words % WORDS_BETWEEN_QUESTIONS == 0 && !(bounds.wanted)() {
                    return Err(Failure::Stopped);
                }
                let word = match &splits {
                    Some(_) => {
                        alphabet.clear();
                        alphabet.extend(word.bytes().map(char_of));
                        alphabet.as_str()
                    }
                    None => word,
                };
                self.tokenize(word, mark.is_some(), &mut ids)?;
                if ids.len() > bounds.max_tokens {
                    Err(Failure::TooLong)
                } else {
                    Ok(())
                }
            })?;
        }
        drop(parts);
        let encoding: Encoding = ids.into_iter().map(|id| (id, String::new(), (0, 0), None, 0)).collect();
        let encoding =
            self.inner.post_process(encoding, None, add_special_tokens).map_err(|e| e.to_string())?;
        if encoding.len() > bounds.max_tokens {
            return Err(Failure::TooLong);
        }
        Ok(encoding.get_ids().to_vec())
    }

    /// Control tokens in a text, but for those of `kept` (in order).
    pub fn find_controls(&self, text: &[u8], kept: &[u32]) -> Result<Found, String> {
        Ok(self.controls.find(utf8(text)?, kept, self.inner.get_normalizer()))
    }

    /// The text with `mark` where find_controls says.
    pub fn mark(&self, text: &[u8], kept: &[u32], mark: char) -> Result<String, String> {
        let found = self.find_controls(text, kept)?;
        Ok(controls::mark(utf8(text)?, &found.places, mark))
    }

    /// The result of extract_and_normalize if it could see a text's marks and skip them.
    fn parts_of_marked(&self, text: &str, mark: char) -> Result<PreTokenizedString, String> {
        let (text, breaks) = controls::unmark(text, mark);
        let mut parts = PreTokenizedString::from(text);
        parts.split(|_, part| Ok(self.controls.cut_plain(part, &breaks))).map_err(|e| e.to_string())?;
        parts
            .split(|_, mut part| {
                if let Some(normalizer) = self.inner.get_normalizer() {
                    let _ = normalizer.normalize(&mut part); // as the library does
                }
                Ok(self.controls.cut_normalized(part, &breaks))
            })
            .map_err(|e| e.to_string())?;
        Ok(parts)
    }

    /// The ids of one word. `marked`: no control token comes of its letters.
    fn tokenize(&self, word: &str, marked: bool, ids: &mut Vec<u32>) -> Result<(), Failure> {
        let tokens = self.inner.get_model().tokenize(word).map_err(|e| e.to_string())?;
        let cuts = if marked { self.controls.cuts(word, &tokens) } else { vec![] };
        if cuts.is_empty() {
            ids.extend(tokens.iter().map(|token| token.id));
            return Ok(());
        }
        let mut done = 0;
        for cut in cuts.into_iter().chain([word.len()]) {
            self.tokenize(&word[done..cut], marked, ids)?;
            done = cut;
        }
        Ok(())
    }

    /// The patterns of a pre-tokenizer that cuts a text by patterns, one after the other, keeps everything, and then writes the
    /// pieces in the byte-level alphabet: what byte-level models have today. There each word follows from the text before
    /// its end and the pattern alone, so they can be made one by one. None for all others.
    fn splits(&self) -> Option<Vec<&Split>> {
        let PreTokenizerWrapper::Sequence(sequence) = self.inner.get_pre_tokenizer()? else {
            return None;
        };
        let (last, splits) = sequence.as_ref().split_last()?;
        match last {
            PreTokenizerWrapper::ByteLevel(level) if !level.use_regex && !level.add_prefix_space => {}
            _ => return None,
        }
        splits
            .iter()
            .map(|step| match step {
                PreTokenizerWrapper::Split(split)
                    if split.behavior == SplitDelimiterBehavior::Isolated && !split.invert =>
                {
                    Some(split)
                }
                _ => None,
            })
            .collect()
    }

    pub fn decode(&self, ids: &[u32], keep_special: bool) -> Result<String, String> {
        self.inner.decode(ids, !keep_special).map_err(|e| e.to_string())
    }

    /// Some of the library's decoders panic at text that is shorter than what they take away: better here than at work.
    fn decode_alone(&self, id: u32) -> Result<String, String> {
        catch_unwind(AssertUnwindSafe(|| self.decode(&[id], true)))
            .unwrap_or_else(|_| Err(format!("the library's decoder, as the file sets it up, fails at token id {id}")))
    }

    pub fn table(&self) -> Result<Table, String> {
        let decoder = serde_json::to_value(self.inner.get_decoder()).map_err(|e| e.to_string())?;
        let plan = Plan::of(&decoder);
        let largest = self.inner.get_vocab(true).into_values().max();
        let count = largest.map_or(0, |id| id as usize + 1);
        if count > MAX_VOCABULARY {
            return Err(format!("token id {} is in the vocabulary; ids up to {} are served", count - 1, MAX_VOCABULARY - 1));
        }
        let mut table = Table {
            bytes: Vec::with_capacity(count * 8),
            ends: Vec::with_capacity(count),
            flags: Vec::with_capacity(count),
            join: plan.as_ref().map_or(Join::Opaque, |p| p.join),
            strip_spaces: plan.as_ref().map_or(0, |p| p.strip_spaces),
            verbatim: plan.is_some() && self.inner.get_normalizer().is_none(),
        };
        let added = self.inner.get_added_vocabulary();
        for id in 0..count as u32 {
            let mut flags = 0;
            if let Some(token) = self.inner.id_to_token(id) {
                flags = PRESENT;
                if added.is_special_token(&token) {
                    flags |= SPECIAL;
                }
                if self.controls.contains(id) {
                    flags |= CONTROL;
                }
                match &plan {
                    Some(plan) => table.bytes.extend(plan.bytes(token)),
                    None => table.bytes.extend(self.decode_alone(id)?.into_bytes()),
                }
            }
            table
                .ends
                .push(u32::try_from(table.bytes.len()).map_err(|_| "vocabulary over 4 GiB".to_string())?);
            table.flags.push(flags);
        }
        Ok(table)
    }
}

fn utf8(text: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(text)
        .map_err(|e| format!("text is not UTF-8: invalid byte sequence at offset {}", e.valid_up_to()))
}

/// Calls `visit` with the pieces of a text, in order: what a pattern matches and what lies between its matches, each cut
/// again by the patterns that follow. Never with an empty one.
fn each_word(
    splits: &[&Split],
    text: &str,
    visit: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((split, rest)) = splits.split_first() else {
        return visit(text);
    };
    let mut done = 0;
    for (start, end) in split.regex.find_iter(text) {
        each_word(rest, &text[done..start], visit)?;
        each_word(rest, &text[start..end], visit)?;
        done = end;
    }
    each_word(rest, &text[done..], visit)
}

/// The special tokens that a post-processor adds, by name.
fn added_ids(processor: &Value) -> Vec<(String, u64)> {
    let named = |pair: &Value| Some((pair[0].to_string(), pair[1].as_u64()?));
    match processor["type"].as_str() {
        Some("Sequence") => {
            let steps = processor["processors"].as_array();
            steps.into_iter().flatten().flat_map(added_ids).collect()
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            ["cls", "sep"].iter().filter_map(|side| named(&processor[side])).collect()
        }
        Some("TemplateProcessing") => {
            let tokens = processor["special_tokens"].as_object();
            let ids = |(name, token): (&String, &Value)| {
                let name = Value::from(name.as_str()).to_string();
                let ids: Vec<u64> = token["ids"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
                ids.into_iter().map(move |id| (name.clone(), id))
            };
            tokens.into_iter().flatten().flat_map(ids).collect()
        }
        _ => vec![],
    }
}

/// A decoder's step on one token, for decoders that treat tokens one by one and then concatenate.
enum Step {
    Replace { pattern: String, content: String },
    ByteFallback,
    ByteLevel,
}

struct Plan {
    steps: Vec<Step>,
    join: Join,
    strip_spaces: u32,
}

impl Plan {
    /// None if the text of a run is more than the concatenation of its tokens' text.
    fn of(decoder: &Value) -> Option<Plan> {
        let one = std::slice::from_ref(decoder);
        let sequence = match decoder["type"].as_str()? {
            "Sequence" => decoder["decoders"].as_array()?.as_slice(),
            _ => one,
        };
        let mut plan = Plan { steps: vec![], join: Join::Bytes, strip_spaces: 0 };
        let mut fused = false;
        for step in sequence {
            match step["type"].as_str()? {
                // ByteLevel joins by itself and works on the vocabulary's own alphabet: alone or not at all.
                "ByteLevel" if sequence.len() == 1 => plan.steps.push(Step::ByteLevel),
                // Its rule for the first token is the library's to apply: alone or not at all, too.
                "Metaspace" if sequence.len() == 1 => {
                    let pattern = step["replacement"].as_str()?.to_string();
                    plan.steps.push(Step::Replace { pattern, content: " ".to_string() });
                    plan.join = Join::BytesFirstDecoded;
                }
                "Replace" if !fused => {
                    let pattern = step["pattern"]["String"].as_str()?.to_string();
                    let content = step["content"].as_str()?.to_string();
                    // After ByteFallback it would see the joined bytes.
                    if pattern.is_empty() || plan.steps.iter().any(|s| matches!(s, Step::ByteFallback)) {
                        return None;
                    }
                    plan.steps.push(Step::Replace { pattern, content });
                }
                "ByteFallback" if !fused => plan.steps.push(Step::ByteFallback),
                "Fuse" => fused = true,
                "Strip" if fused && step["content"] == " " && step["stop"] == 0 && plan.strip_spaces == 0 => {
                    plan.strip_spaces = step["start"].as_u64()? as u32;
                }
                _ => return None,
            }
        }
        Some(plan)
    }

    fn bytes(&self, token: String) -> Vec<u8> {
        let mut text = token;
        for step in &self.steps {
            match step {
                Step::Replace { pattern, content } => text = text.replace(pattern, content),
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return vec![byte];
                    }
                }
                Step::ByteLevel => {
                    // A token with a character outside the alphabet (an added token) stands for itself.
                    return text
                        .chars()
                        .map(byte_of)
                        .collect::<Option<Vec<u8>>>()
                        .unwrap_or(text.into_bytes());
                }
            }
        }
        text.into_bytes()
    }
}

/// "<0x0A>" is the byte 0x0A.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The byte-level alphabet of GPT-2: printable Latin-1 stands for itself, and the 68 other bytes for the characters from
/// U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The other way round.
fn char_of(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => byte as u32,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7F..=0xA0 => 0x121 + (byte as u32 - 0x7F),
        0xAD => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}
